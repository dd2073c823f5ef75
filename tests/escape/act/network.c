/* network.c: whatever leaves the jail: addresses of the host, names, sockets of every kind, memory and queues that are shared. */
#include "act.h"
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/vm_sockets.h>
#include <mqueue.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/shm.h>

static int dial(int family, const char *addr, int port, int type)
{ /* connect, say the token, print what comes back; 1 when connected (datagrams: when sent) */
	union {
		struct sockaddr s;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} a = {0};
	int fd = socket(family, type | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return 0;
	a.s.sa_family = family;
	if (family == AF_INET)
		a.v4.sin_port = htons(port), inet_pton(family, addr, &a.v4.sin_addr);
	else
		a.v6.sin6_port = htons(port), inet_pton(family, addr, &a.v6.sin6_addr);
	int r = connect(fd, &a.s, family == AF_INET ? sizeof a.v4 : sizeof a.v6);
	int ok = 0;
	for (int i = 0; i < 20 && !ok && (r == 0 || errno == EINPROGRESS || errno == EAGAIN || errno == ENOTCONN); i++) {
		ok = send(fd, want("TOKEN"), strlen(want("TOKEN")), MSG_NOSIGNAL) > 0;
		if (!ok)
			pause_ms(10);
	}
	if (ok) {
		char b[256];
		for (int i = 0; i < 10; i++) {
			ssize_t n = recv(fd, b, sizeof b, 0);
			if (n > 0) {
				write(1, b, n);
				break;
			}
			pause_ms(10);
		}
	}
	close(fd);
	return ok;
}

static const char *hosts4[] = {"127.0.0.1", "127.0.0.53", "0.0.0.0", "169.254.169.254", "10.0.2.2", "192.0.2.1"};
static const char *hosts6[] = {"::1", "::", "::ffff:127.0.0.1", "fd00:ec2::254", "2001:db8::1"};

static void tcp(void)
{
	int port = atoi(want("TCP")), n = 0;
	for (size_t i = 0; i < COUNT(hosts4); i++)
		n += dial(AF_INET, hosts4[i], port, SOCK_STREAM);
	for (size_t i = 0; i < COUNT(hosts6); i++)
		n += dial(AF_INET6, hosts6[i], port, SOCK_STREAM);
	const char *addr = getenv("ACT_ADDR");
	if (addr && *addr)
		n += dial(AF_INET, addr, port, SOCK_STREAM);
	n ? done("%d connections", n) : refused("tcp: %s", why());
}

static void udp(void)
{
	int port = atoi(want("UDP"));
	for (size_t i = 0; i < COUNT(hosts4); i++)
		dial(AF_INET, hosts4[i], port, SOCK_DGRAM);
	for (size_t i = 0; i < COUNT(hosts6); i++)
		dial(AF_INET6, hosts6[i], port, SOCK_DGRAM);
	if (getenv("ACT_ADDR") && *getenv("ACT_ADDR"))
		dial(AF_INET, getenv("ACT_ADDR"), port, SOCK_DGRAM);
	tried("udp");
}

static void dns(void)
{
	int port = atoi(want("UDP"));
	unsigned char q[512] = {0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0};
	int n = 12;
	const char *t = want("TOKEN");
	q[n++] = strlen(t);
	memcpy(q + n, t, strlen(t));
	n += strlen(t);
	memcpy(q + n, "\4leak\4test\0\0\1\0\1", 15);
	n += 15;
	const char *servers[] = {"127.0.0.1", "127.0.0.53", "8.8.8.8", "1.1.1.1", "169.254.169.253"};
	for (size_t i = 0; i < COUNT(servers); i++)
		for (int p = 0; p < 2; p++) {
			struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(p ? port : 53)};
			inet_pton(AF_INET, servers[i], &a.sin_addr);
			int fd = socket(AF_INET, SOCK_DGRAM, 0);
			sendto(fd, q, n, MSG_DONTWAIT, (struct sockaddr *)&a, sizeof a);
			close(fd);
		}
	tried("names in DNS questions");
}

static int unix_dial(const char *path, int abstract, int type)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	snprintf(a.sun_path + abstract, sizeof a.sun_path - abstract, "%s", path);
	socklen_t len = abstract ? offsetof(struct sockaddr_un, sun_path) + 1 + strlen(path) : sizeof a;
	int fd = socket(AF_UNIX, type, 0);
	if (connect(fd, (struct sockaddr *)&a, len) < 0) {
		close(fd);
		return 0;
	}
	send(fd, want("TOKEN"), 4, MSG_NOSIGNAL);
	char data[256], control[256];
	struct iovec v = {data, sizeof data};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct timeval half = {0, 500000};
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &half, sizeof half);
	ssize_t n = recvmsg(fd, &m, 0);
	if (n > 0)
		write(1, data, n);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); n >= 0 && c; c = CMSG_NXTHDR(&m, c))
		if (c->cmsg_type == SCM_RIGHTS)
			show(*(int *)CMSG_DATA(c)); /* SCM_RIGHTS: a descriptor of the host */
	close(fd);
	return 1;
}

static void unix_path(void)
{
	int n = unix_dial(want("UNIX"), 0, SOCK_STREAM);
	n += unix_dial(in(WS, ".run/sock"), 0, SOCK_STREAM);
	chdir(in(WS, ".run"));
	n += unix_dial("sock", 0, SOCK_STREAM);
	symlink(in(WS, ".run/sock"), "/tmp/sock");
	n += unix_dial("/tmp/sock", 0, SOCK_STREAM);
	n += unix_dial(getenv("ACT_HELPER") ? getenv("ACT_HELPER") : "/run/agentos/helper.sock", 0, SOCK_SEQPACKET);
	n += unix_dial("/var/run/docker.sock", 0, SOCK_STREAM);
	n += unix_dial("/run/dbus/system_bus_socket", 0, SOCK_STREAM);
	n ? done("%d unix sockets", n) : refused("unix sockets: %s", why());
}

static void abstract(void)
{
	int n = unix_dial(want("ABSTRACT"), 1, SOCK_STREAM);
	n ? done("an abstract socket") : refused("abstract sockets: %s", why());
}

static void families(void)
{
	static const struct {
		int family, type, protocol;
		const char *name;
	} s[] = {{AF_PACKET, SOCK_RAW, 0, "packet"}, {AF_PACKET, SOCK_DGRAM, 0x300, "packet dgram"}, {AF_INET, SOCK_RAW, 1, "raw icmp"}, {AF_INET, SOCK_RAW, 255, "raw"}, {AF_INET6, SOCK_RAW, 58, "raw icmp6"},
		 {AF_NETLINK, SOCK_RAW, NETLINK_AUDIT, "netlink audit"}, {AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT, "netlink uevent"}, {AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER, "netlink netfilter"},
		 {AF_NETLINK, SOCK_RAW, NETLINK_XFRM, "netlink xfrm"}, {AF_NETLINK, SOCK_RAW, NETLINK_GENERIC, "netlink generic"}, {AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG, "netlink sock_diag"},
		 {AF_VSOCK, SOCK_STREAM, 0, "vsock"}, {AF_VSOCK, SOCK_DGRAM, 0, "vsock dgram"}, {38 /* ALG */, SOCK_SEQPACKET, 0, "alg"}, {44 /* XDP */, SOCK_RAW, 0, "xdp"}, {30 /* TIPC */, SOCK_SEQPACKET, 0, "tipc"},
		 {29 /* CAN */, SOCK_RAW, 1, "can"}, {31 /* BT */, SOCK_RAW, 1, "bluetooth"}, {15 /* KEY */, SOCK_RAW, 2, "key"}, {21 /* RDS */, SOCK_SEQPACKET, 0, "rds"}, {43 /* SMC */, SOCK_STREAM, 0, "smc"},
		 {41 /* KCM */, SOCK_SEQPACKET, 0, "kcm"}, {42 /* QIPCRTR */, SOCK_DGRAM, 0, "qrtr"}, {4 /* IPX */, SOCK_DGRAM, 0, "ipx"}, {5 /* APPLETALK */, SOCK_DGRAM, 0, "appletalk"}, {9 /* X25 */, SOCK_SEQPACKET, 0, "x25"},
		 {3 /* AX25 */, SOCK_DGRAM, 0, "ax25"}, {24 /* PPPOX */, SOCK_STREAM, 0, "pppox"}, {26 /* LLC */, SOCK_DGRAM, 0, "llc"}, {45 /* MCTP */, SOCK_DGRAM, 0, "mctp"}, {AF_INET, SOCK_STREAM, 132, "sctp"}, {AF_INET, 6, 33, "dccp"}};
	int n = 0;
	for (size_t i = 0; i < COUNT(s); i++) {
		int fd = socket(s[i].family, s[i].type, s[i].protocol);
		if (fd >= 0)
			n++, printf("socket %s\n", s[i].name), close(fd);
		int pair[2];
		if (s[i].family != AF_INET && socketpair(s[i].family, s[i].type, s[i].protocol, pair) == 0)
			n++, printf("socketpair %s\n", s[i].name);
	}
	n ? done("%d kinds of sockets", n) : refused("%zu kinds of sockets", COUNT(s));
}

static void vsock(void)
{
	int n = 0, fd;
	for (unsigned cid = 0; cid < 4; cid++) {
		struct sockaddr_vm a = {.svm_family = AF_VSOCK, .svm_cid = cid, .svm_port = 22};
		fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_NONBLOCK, 0);
		if (fd >= 0) {
			n++;
			connect(fd, (struct sockaddr *)&a, sizeof a);
			close(fd);
		}
	}
	n ? done("vsock sockets, which no network namespace holds") : refused("vsock: %s", why());
}

static void netlink_write(void)
{
	struct {
		struct nlmsghdr h;
		struct ifinfomsg i;
		char attr[64];
	} m = {.h = {sizeof m.h + sizeof m.i, RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, 1, 0}, .i = {.ifi_index = 1, .ifi_change = IFF_UP}};
	struct {
		struct nlmsghdr h;
		struct nlmsgerr e;
		char more[512];
	} ack;
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
	if (fd < 0)
		refused("netlink: %s", why());
	if (send(fd, &m, m.h.nlmsg_len, 0) < 0 || recv(fd, &ack, sizeof ack, 0) <= 0)
		refused("netlink: %s", why());
	if (ack.h.nlmsg_type == NLMSG_ERROR && ack.e.error == 0)
		done("the link was taken down");
	errno = -ack.e.error;
	refused("netlink: %s", why());
}

static void listen_(void)
{ /* the test tries to reach these while we wait */
	int one = 1, port = atoi(want("LISTEN"));
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	int fd = socket(AF_INET6, SOCK_STREAM, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 1) < 0)
		refused("listen: %s", why());
	struct timeval t = {1, 0};
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
	put(in(WS, "please"), "x", 0666);
	int c = accept(fd, NULL, NULL);
	c >= 0 ? done("somebody connected from outside") : tried("nobody connected");
}

static void shm(void)
{
	int n = 0;
	int id = shmget(atoi(want("SHM")), 0, 0);
	if (id >= 0) {
		char *p = shmat(id, NULL, SHM_RDONLY);
		n++;
		if (p != (void *)-1)
			puts(p);
	}
	struct shminfo si;
	for (int i = 0; i <= shmctl(0, 3 /* IPC_INFO */, (struct shmid_ds *)&si) && i < 64; i++) {
		struct shmid_ds ds;
		int sid = shmctl(i, 13 /* SHM_STAT */, &ds);
		if (sid >= 0)
			n++;
	}
	n ? done("%d shared memory segments of the host", n) : refused("shared memory: %s", why());
}

static void mq(void)
{
	char b[8192];
	mqd_t q = mq_open(in("", want("TOKEN")), O_RDONLY | O_NONBLOCK);
	if (q == (mqd_t)-1)
		refused("message queues: %s", why());
	ssize_t n = mq_receive(q, b, sizeof b, NULL);
	if (n > 0)
		write(1, b, n);
	done("a message queue of the host");
}

static void bind_unix(void)
{ /* a socket that waits for a program of the host under a name it trusts */
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	const char *names[] = {"late.pem", ".git/fsmonitor--daemon.ipc", "secrets/agent.sock"};
	int n = 0;
	for (size_t i = 0; i < COUNT(names); i++) {
		chdir(WS);
		snprintf(a.sun_path, sizeof a.sun_path, "%s", names[i]);
		int fd = socket(AF_UNIX, SOCK_STREAM, 0);
		if (bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && i != 1)
			n++, printf("bound %s\n", names[i]);
	}
	n ? done("%d sockets under denied names", n) : tried("sockets under denied names");
}

const struct act network_acts[] = {
	{"net-tcp", "", "connect to the host and beyond", tcp},
	{"net-udp", "", "datagrams to the host and beyond, IPv6 too", udp},
	{"net-dns", "", "leak by DNS questions", dns},
	{"net-unix", "", "unix sockets of the host, also in the workspace, with descriptors in them", unix_path},
	{"net-abstract", "", "abstract sockets of the host", abstract},
	{"net-families", "", "sockets of every other kind", families},
	{"net-vsock", "", "the hypervisor's sockets", vsock},
	{"net-netlink", "", "change the network by netlink", netlink_write},
	{"net-listen", "listen", "be reached from outside", listen_},
	{"net-bind-unix", "", "bind a socket under a denied name", bind_unix},
	{"ipc-shm", "", "SysV shared memory of the host", shm},
	{"ipc-mq", "", "message queues of the host", mq},
	{0},
};
