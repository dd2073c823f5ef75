package helper

import (
	"sync"

	"github.com/agentos/agentos/policy"
)

// maxCompiled bounds the automata that are kept: the same people start the same
// agents on the same workspaces.
const maxCompiled = 16

// compiled keeps the automata of the latest policies by their hash, because
// compiling one takes many times as long as everything else of a start.
type compiled struct {
	mu   sync.Mutex
	list []kept // latest last
}

type kept struct {
	hash string
	e    *policy.Explainer
}

// get returns the compiled form of r, which must not change any more.
func (c *compiled) get(r *policy.Resolved) (*policy.Explainer, error) {
	hash := r.Hash()
	c.mu.Lock()
	for i, k := range c.list {
		if k.hash == hash {
			c.list = append(append(c.list[:i:i], c.list[i+1:]...), k)
			c.mu.Unlock()
			return k.e, nil
		}
	}
	c.mu.Unlock()
	e, err := r.Explainer()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) >= maxCompiled {
		c.list = c.list[1:]
	}
	c.list = append(c.list, kept{hash, e})
	return e, nil
}
