package hook

import (
	"sync/atomic"
	"unsafe"
)

// The kernel publishes positions and headers with release semantics; plain loads
// would let the compiler or CPU read a record before its header.

func loadWord(b []byte) uint64     { return atomic.LoadUint64((*uint64)(unsafe.Pointer(&b[0]))) }
func storeWord(b []byte, v uint64) { atomic.StoreUint64((*uint64)(unsafe.Pointer(&b[0])), v) }
func loadHalf(b []byte) uint32     { return atomic.LoadUint32((*uint32)(unsafe.Pointer(&b[0]))) }
