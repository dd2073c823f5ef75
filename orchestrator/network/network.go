// Package network asks the helper about the network of a running session, and has it
// changed: its connections, its rules, and what a user grants or forbids it meanwhile.
//
// It holds no right and judges nothing: the helper answers a session's owner and
// root, and decides what may be granted. Answers come in a sealed memfd, because a
// session may have thousands of connections.
package network

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/rpc"
)

// Gate is the conversation with the helper that this package needs.
type Gate interface {
	CallFDs(ctx context.Context, v rpc.Verb, body, out any, fds ...int) ([]*os.File, error)
}

// maxAnswer bounds what is read of an answer, in bytes: 4,096 connections with long rules.
const maxAnswer = 64 << 20

// State tells what a running session has to do with the network now. Errors of the helper are [*rpc.Error].
func State(ctx context.Context, g Gate, session string) (n rpc.Network, err error) {
	return n, ask(ctx, g, rpc.NetworkVerb, session, &n)
}

// Rules tells which rules of [net] hold for a running session. Errors of the helper are [*rpc.Error].
func Rules(ctx context.Context, g Gate, session string) (r rpc.NetRules, err error) {
	return r, ask(ctx, g, rpc.RulesVerb, session, &r)
}

// Grant lets a running session reach more or less, or takes that back: when it returns, that holds, and what is
// not allowed any more is cut. Errors of the helper are [*rpc.Error].
func Grant(ctx context.Context, g Gate, m rpc.SetGrant) (out rpc.GrantSet, err error) {
	files, err := g.CallFDs(ctx, rpc.GrantVerb, m, &out)
	closeAll(files)
	if err != nil {
		return out, fmt.Errorf("change network of %s: %w", m.Session, err)
	}
	return out, nil
}

func ask(ctx context.Context, g Gate, v rpc.Verb, session string, out any) error {
	files, err := g.CallFDs(ctx, v, rpc.SessionRef{Session: session}, nil)
	if err != nil {
		return fmt.Errorf("ask about network: %w", err)
	}
	defer closeAll(files)
	if len(files) != 1 {
		return fmt.Errorf("ask about network: helper sent %d descriptors, want one", len(files))
	}
	data, err := io.ReadAll(io.NewSectionReader(files[0], 0, maxAnswer+1))
	if err == nil && len(data) > maxAnswer {
		err = packet.ErrTooLarge
	}
	if err == nil {
		err = packet.UnmarshalDocument(data, out)
	}
	if err != nil {
		return fmt.Errorf("read about network: %w", err)
	}
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
