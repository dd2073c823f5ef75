package meter

import (
	"reflect"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLayout compares our offsets with the kernel's struct as golang.org/x/sys has generated it.
func TestLayout(t *testing.T) {
	stats := reflect.TypeFor[unix.Taskstats]()
	for name, want := range map[string]uintptr{"Ac_uid": offUID, "Ac_pid": offPid, "Write_bytes": offWrote} {
		f, ok := stats.FieldByName(name)
		if !ok || f.Offset != want {
			t.Errorf("%s is at %d, not %d", name, f.Offset, want)
		}
	}
	for name, pair := range map[string][2]int{
		"CTRL_CMD_GETFAMILY": {unix.CTRL_CMD_GETFAMILY, cmdGetFamily}, "CTRL_ATTR_FAMILY_ID": {unix.CTRL_ATTR_FAMILY_ID, attrFamilyID},
		"CTRL_ATTR_FAMILY_NAME": {unix.CTRL_ATTR_FAMILY_NAME, attrFamilyName}, "TASKSTATS_CMD_GET": {unix.TASKSTATS_CMD_GET, cmdGet},
		"REGISTER_CPUMASK": {unix.TASKSTATS_CMD_ATTR_REGISTER_CPUMASK, attrRegister}, "DEREGISTER_CPUMASK": {unix.TASKSTATS_CMD_ATTR_DEREGISTER_CPUMASK, attrDeregister},
		"TYPE_STATS": {unix.TASKSTATS_TYPE_STATS, attrStats}, "TYPE_AGGR_PID": {unix.TASKSTATS_TYPE_AGGR_PID, attrAggrPid},
		"GENL_ID_CTRL": {unix.GENL_ID_CTRL, typeControl}, "NLMSG_ERROR": {unix.NLMSG_ERROR, typeError},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %d, not %d", name, pair[0], pair[1])
		}
	}
}
