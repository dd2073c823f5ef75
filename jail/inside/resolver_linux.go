package inside

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentos/agentos/audit/event"
)

// resolverAddr is the name server that the jail's resolv.conf names.
var resolverAddr = unix.SockaddrInet4{Port: 53, Addr: [4]byte{127, 0, 0, 53}}

// resolver answers every name with "no such name" and records who was looked
// for: without a network a program learns at once, and the record names what an
// address could not. (DNS of allowed names comes with the network daemon.)
func (s *state) resolver() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make socket: %w", err)
	}
	if err := unix.Bind(fd, &resolverAddr); err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("bind: %w", err)
	}
	go func() { // lives as long as the process
		buf := make([]byte, 1500)
		for {
			n, from, err := unix.Recvfrom(fd, buf, 0)
			if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNREFUSED) {
				continue
			}
			if err != nil {
				return
			}
			name, end, ok := question(buf[:n])
			if !ok {
				continue
			}
			s.events.emit(event.Event{Kind: event.Resolve, Verdict: event.Deny, Name: name, Addr: "127.0.0.53:53", Errno: int(unix.ENOENT), Detail: "no rule allows the network"})
			_ = unix.Sendto(fd, refusal(buf[:end]), 0, from)
		}
	}()
	return nil
}

const dnsHeader = 12 // bytes, RFC 1035 section 4.1.1

// question returns the name of the first question of a query and where that
// question ends. Names are at most 255 bytes and, in a query, not compressed.
func question(p []byte) (name string, end int, ok bool) {
	if len(p) < dnsHeader || p[2]&0x80 != 0 || binary.BigEndian.Uint16(p[4:]) == 0 {
		return "", 0, false
	}
	var labels []string
	at := dnsHeader
	for {
		if at >= len(p) || at > dnsHeader+255 {
			return "", 0, false
		}
		n := int(p[at])
		at++
		if n == 0 {
			break
		}
		if n > 63 || at+n > len(p) {
			return "", 0, false
		}
		labels = append(labels, string(p[at:at+n]))
		at += n
	}
	if at+4 > len(p) {
		return "", 0, false
	}
	return strings.Join(labels, "."), at + 4, true
}

// refusal turns a query, cut behind its first question, into the answer that
// there is no such name.
func refusal(q []byte) []byte {
	out := append([]byte(nil), q...)
	out[2] = 0x80 | q[2]&0x79 // an answer; opcode and "recursion desired" as asked
	out[3] = 0x80 | 3         // recursion available, NXDOMAIN
	binary.BigEndian.PutUint16(out[4:], 1)
	clear(out[6:dnsHeader])
	return out
}
