package meter

import (
	"encoding/binary"
	"errors"
)

// Numbers of linux/netlink.h, linux/genetlink.h and linux/taskstats.h.
const (
	msgHeader  = 16 // struct nlmsghdr
	genlHeader = 4  // struct genlmsghdr
	attrHeader = 4  // struct nlattr

	typeError = 2 // NLMSG_ERROR

	attrFamilyID   = 1 // CTRL_ATTR_FAMILY_ID
	attrFamilyName = 2 // CTRL_ATTR_FAMILY_NAME
	cmdGetFamily   = 3 // CTRL_CMD_GETFAMILY
	typeControl    = 16

	cmdGet         = 1 // TASKSTATS_CMD_GET
	attrRegister   = 3 // TASKSTATS_CMD_ATTR_REGISTER_CPUMASK
	attrDeregister = 4 // TASKSTATS_CMD_ATTR_DEREGISTER_CPUMASK
	attrStats      = 3 // TASKSTATS_TYPE_STATS
	attrAggrPid    = 4 // TASKSTATS_TYPE_AGGR_PID

	offUID   = 120 // struct taskstats, ac_uid
	offPid   = 128 // ac_pid
	offWrote = 256 // write_bytes
)

var errMessage = errors.New("unexpected message")

// request makes a generic netlink message with one string attribute.
func request(family uint16, cmd byte, attr uint16, value string) []byte {
	b := make([]byte, msgHeader+genlHeader, 96)
	binary.NativeEndian.PutUint16(b[4:], family)
	binary.NativeEndian.PutUint16(b[6:], 1) // NLM_F_REQUEST
	b[msgHeader], b[msgHeader+1] = cmd, 1
	b = binary.NativeEndian.AppendUint16(b, uint16(attrHeader+len(value)+1))
	b = binary.NativeEndian.AppendUint16(b, attr)
	b = append(append(b, value...), 0)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	return b
}

// messages calls each with the type and the attributes of every generic message.
func messages(data []byte, each func(kind uint16, attrs []byte) error) error {
	for len(data) > 0 {
		if len(data) < msgHeader {
			return errMessage
		}
		n := int(binary.NativeEndian.Uint32(data))
		kind := binary.NativeEndian.Uint16(data[4:])
		if n < msgHeader+genlHeader || n > len(data) || kind == typeError {
			return errMessage
		}
		if err := each(kind, data[msgHeader+genlHeader:n]); err != nil {
			return err
		}
		data = data[min((n+3)&^3, len(data)):]
	}
	return nil
}

// attribute returns the value of the first attribute of a kind, nil if there is none.
func attribute(attrs []byte, kind uint16) []byte {
	for len(attrs) >= attrHeader {
		n := int(binary.NativeEndian.Uint16(attrs))
		if n < attrHeader || n > len(attrs) {
			return nil
		}
		const flags = 3 << 14 // NLA_F_NESTED, NLA_F_NET_BYTEORDER
		if binary.NativeEndian.Uint16(attrs[2:])&^flags == kind {
			return attrs[attrHeader:n]
		}
		attrs = attrs[min((n+3)&^3, len(attrs)):]
	}
	return nil
}

// exit is what is known of a thread that ended.
type exit struct {
	tid, uid uint32 // on the host; the real uid
	wrote    uint64 // bytes
}

// exits calls each for every thread whose end a datagram tells.
func exits(family uint16, data []byte, each func(exit)) error {
	return messages(data, func(kind uint16, attrs []byte) error {
		if kind != family {
			return nil
		}
		stats := attribute(attribute(attrs, attrAggrPid), attrStats)
		if stats == nil {
			return nil // of a whole process: has no bytes
		}
		if len(stats) < offWrote+8 {
			return errMessage
		}
		each(exit{
			binary.NativeEndian.Uint32(stats[offPid:]), binary.NativeEndian.Uint32(stats[offUID:]), binary.NativeEndian.Uint64(stats[offWrote:]),
		})
		return nil
	})
}
