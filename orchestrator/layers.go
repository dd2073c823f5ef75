package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/agentos/agentos/jail/organisation"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/policy"
)

// OrgDir holds the organisation's policy files. The helper reads them itself;
// here they serve explanations and early errors.
const OrgDir = "/etc/agentos/policy.d"

// policyFile is the path of a user's policy below the home, and of a project's
// below the workspace.
const policyFile = ".agentos/policy.toml"

// Profile finds the policy called name: a builtin, else NAME.toml in
// ~/.agentos/policies, else, when name looks like a path (it contains a slash or
// ends in .toml), the file. "builtin:NAME" is the builtin alone.
func Profile(name, home string) (*policy.Document, error) {
	if b, ok := strings.CutPrefix(name, "builtin:"); ok {
		return policy.Builtin(b)
	}
	if strings.Contains(name, "/") || strings.HasSuffix(name, ".toml") {
		return loadPolicy(name)
	}
	if slices.Contains(policy.BuiltinNames(), name) {
		return policy.Builtin(name)
	}
	if doc, err := policy.Load(filepath.Join(home, ".agentos/policies", name+".toml")); !errors.Is(err, fs.ErrNotExist) {
		return doc, err
	}
	return nil, &Error{
		Err:  fmt.Errorf("no policy is named %q", name),
		Hint: "there are " + strings.Join(policy.BuiltinNames(), ", ") + "; a file is named by its path, or by its name in ~/.agentos/policies",
	}
}

// grantor is [Profile] as it goes to the helper: a builtin by reference.
func grantor(name, home string) (*policy.Document, error) {
	b := strings.TrimPrefix(name, "builtin:")
	if slices.Contains(policy.BuiltinNames(), b) {
		return policy.BuiltinReference(b)
	}
	doc, err := Profile(name, home)
	if err != nil || !strings.ContainsRune(doc.File, filepath.Separator) {
		return doc, err
	}
	if abs, err := filepath.Abs(doc.File); err == nil { // records name it, and are read from anywhere
		doc.File = abs
	}
	return doc, nil
}

func loadPolicy(path string) (*policy.Document, error) {
	doc, err := policy.Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &Error{Err: fmt.Errorf("policy file %s does not exist", path)}
	}
	return doc, err
}

// Layers are the layers that hold below the organisation's, top first: the
// user's and the project's policies where they exist, and profile.
func Layers(profile *policy.Document, home, workspace string) ([]policy.Layer, error) {
	var out []policy.Layer
	user, err := policy.Load(filepath.Join(home, policyFile))
	switch {
	case err == nil:
		out = append(out, policy.Layer{Kind: policy.User, Doc: user})
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	project, err := projectPolicy(workspace, home)
	if err != nil {
		return nil, err
	}
	if project != nil {
		out = append(out, policy.Layer{Kind: policy.Project, Doc: project})
	}
	return append(out, policy.Layer{Kind: policy.Profile, Doc: profile}), nil
}

// SetPolicy puts the file rules of the policy called name (see [Profile]), with the
// user's and the project's layers as they are now, in the place of those of a running
// session. home is the caller's. Of another user's session, which only root may change,
// those two layers stay what they were.
func SetPolicy(ctx context.Context, g Gate, session, name, home string) (set rpc.PolicySet, err error) {
	all, err := List(ctx, g, false)
	if err != nil {
		return set, err
	}
	i := slices.IndexFunc(all, func(s rpc.Session) bool { return s.State != "ended" && (s.ID == session || s.Name == session) })
	if i < 0 {
		return set, missing(fmt.Errorf("no running session %q", session), "agentos ps lists them")
	}
	profile, err := grantor(name, home)
	if err != nil {
		return set, err
	}
	own := all[i].UID == os.Geteuid()
	stack := policy.PolicyDocument{Builtins: policy.BuiltinDigest(), Layers: []policy.Layer{{Kind: policy.Profile, Doc: profile}}}
	if own {
		if home, err = realHome(home); err != nil {
			return set, err
		}
		if stack.Layers, err = Layers(profile, home, all[i].Workspace); err != nil {
			return set, err
		}
	}
	data, err := json.Marshal(stack)
	if err != nil {
		return set, fmt.Errorf("encode policy: %w", err)
	}
	doc, err := memfd("policy", data)
	if err != nil {
		return set, err
	}
	defer func() { _ = doc.Close() }()
	if err := call(ctx, g, rpc.Policy, rpc.SetPolicy{Session: all[i].ID, Profile: !own}, &set, int(doc.Fd())); err != nil {
		return set, fmt.Errorf("change policy of %s: %w", all[i].Name, err)
	}
	return set, nil
}

// projectPolicy reads the policy of the workspace, which whoever wrote the
// repository wrote: it is not followed out of the workspace. nil = none.
func projectPolicy(workspace, home string) (*policy.Document, error) {
	if workspace == home {
		return nil, nil // that file is the user's
	}
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return nil, fmt.Errorf("read project policy: %w", err)
	}
	defer func() { _ = root.Close() }()
	f, err := root.OpenFile(policyFile, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO is refused below, not waited for
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read project policy: %w", err)
	}
	defer func() { _ = f.Close() }()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, &Error{Err: fmt.Errorf("read project policy: %s is not a regular file", filepath.Join(workspace, policyFile))}
	}
	data, err := io.ReadAll(io.LimitReader(f, policy.MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read project policy: %w", err)
	}
	return policy.Parse(filepath.Join(workspace, policyFile), data)
}

// OrgRules reads the organisation's policies in dir ("" = [OrgDir]) as the helper does, for
// explanations and early errors: with all their checks. Files that the user may not read
// are an error that is [fs.ErrPermission]. owner is as in [organisation.New].
func OrgRules(dir string, owner int) (*organisation.Rules, error) {
	rules, err := organisation.New(orDefault(dir, OrgDir), owner).Read()
	return rules, orgError(err)
}

func orgLayers(o Options) ([]policy.Layer, error) {
	rules, err := OrgRules(o.OrgDir, o.OrgOwner)
	if err != nil {
		return nil, err
	}
	layers, err := rules.Layers(time.Now(), o.Lifted)
	return layers, orgError(err)
}

// orgError makes of what is wrong with the organisation's rules a refusal.
func orgError(err error) error {
	var e *organisation.Error
	if errors.As(err, &e) {
		return refuse(err, e.Hint)
	}
	return err
}

// BreakGlass asks the helper to do without files of the organisation, see [rpc.BreakGlassAsk].
func BreakGlass(ctx context.Context, g Gate, ask rpc.BreakGlassAsk) (out rpc.GlassBroken, err error) {
	return out, call(ctx, g, rpc.BreakGlass, ask, &out)
}
