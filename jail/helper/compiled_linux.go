package helper

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sync"

	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/policy"
)

// maxKept bounds the policies and automata that are kept: the same people start
// the same agents on the same workspaces. A document over maxKeptDocument bytes
// is not the common case, and not worth the memory.
const (
	maxKept         = 16
	maxKeptDocument = 256 << 10
)

// latest keeps the values that were used last, by key. None of them changes any
// more, so that they are used by several sessions at once.
type latest[K comparable, V any] struct {
	mu   sync.Mutex
	list []kept[K, V] // latest last
}

type kept[K comparable, V any] struct {
	key   K
	value V
}

func (l *latest[K, V]) find(key K) (value V, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.list, func(k kept[K, V]) bool { return k.key == key })
	if i < 0 {
		return value, false
	}
	k := l.list[i]
	l.list = append(slices.Delete(l.list, i, i+1), k)
	return k.value, true
}

func (l *latest[K, V]) add(key K, value V) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) >= maxKept {
		l.list = slices.Delete(l.list, 0, 1)
	}
	l.list = append(l.list, kept[K, V]{key, value})
}

// resolved keeps the latest policies by the hash of all that they are made of.
type resolved struct {
	latest[[sha256.Size]byte, *policy.Resolved]
}

// get resolves the policy of a document below the organisation's files, which
// were read just now.
func (c *resolved) get(org []orgFile, document []byte) (*policy.Resolved, error) {
	sum := sha256.New()
	part := func(data []byte) {
		_ = binary.Write(sum, binary.LittleEndian, uint64(len(data))) // a hash takes all
		sum.Write(data)
	}
	for _, f := range org {
		part([]byte(f.path))
		part(f.data)
	}
	part(document)
	key := [sha256.Size]byte(sum.Sum(nil))
	if res, ok := c.find(key); ok {
		return res, nil
	}
	var stack policy.PolicyDocument
	if err := packet.UnmarshalDocument(document, &stack); err != nil {
		return nil, err
	}
	if stack.Builtins != policy.BuiltinDigest() {
		return nil, &rpc.Error{Code: rpc.Unsupported, Text: "the builtin policies of the helper are not those of the caller", Hint: "install agentos and agentos-helper from one release"}
	}
	layers, err := orgLayers(org)
	if err != nil {
		return nil, err
	}
	res, err := policy.Resolve(append(layers, stack.Layers...), stack.Vars)
	if err != nil {
		return nil, &rpc.Error{Code: rpc.Refused, Text: err.Error()}
	}
	if len(document) <= maxKeptDocument {
		c.add(key, res)
	}
	return res, nil
}

// compiled keeps the automata of the latest policies by their hash, because
// compiling one takes many times as long as everything else of a start.
type compiled struct {
	latest[string, *policy.Explainer]
}

// get returns the compiled form of r, which must not change any more.
func (c *compiled) get(r *policy.Resolved) (*policy.Explainer, error) {
	hash := r.Hash()
	if e, ok := c.find(hash); ok {
		return e, nil
	}
	e, err := r.Explainer()
	if err != nil {
		return nil, err
	}
	c.add(hash, e)
	return e, nil
}
