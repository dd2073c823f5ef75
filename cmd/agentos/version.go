package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agentos/agentos/jail/packet"
	"github.com/agentos/agentos/jail/rpc"
	"github.com/agentos/agentos/orchestrator"
)

func (p *program) versionCommand() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:   "version",
		Short: "print the build of this program",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Build    string `json:"build"`
				Protocol int    `json:"protocol"` // of the gate to the helper
				Go       string `json:"go"`
				OS       string `json:"os"`
				Arch     string `json:"arch"`
			}{packet.Build(), rpc.Protocol, runtime.Version(), runtime.GOOS, runtime.GOARCH}
			if asJSON {
				return p.out.json(v)
			}
			p.out.linef("agentos %s (protocol %d, %s, %s/%s)", v.Build, v.Protocol, v.Go, v.OS, v.Arch)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (p *program) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "write the manual pages of all commands into a directory",
		Args:  count(1, 1, "a directory"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return &orchestrator.Error{Err: fmt.Errorf("write manual: %w", err)}
			}
			return writeMan(c.Root(), args[0])
		},
	}
}

func (p *program) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "print a script that completes agentos commands in a shell",
		Long: `Prints a script for completion in a shell.

  bash: agentos completion bash > /etc/bash_completion.d/agentos
  zsh:  agentos completion zsh > "${fpath[1]}/_agentos"
  fish: agentos completion fish > ~/.config/fish/completions/agentos.fish`,
		Args:      count(1, 1, "bash, zsh or fish"),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(c *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				if err := c.Root().GenBashCompletionV2(p.out.w, true); err != nil {
					return err
				}
				_, err := p.out.w.WriteString(bareBash)
				return err
			case "zsh":
				return c.Root().GenZshCompletion(p.out.w)
			case "fish":
				return c.Root().GenFishCompletion(p.out.w, true)
			}
			return &orchestrator.Error{Err: fmt.Errorf("no completion for shell %q", args[0]), Hint: "bash, zsh or fish"}
		},
	}
}

// bareBash follows cobra's script, whose words come from the package bash-completion:
// without that, pressing TAB would only print that a function is not found.
const bareBash = `
if ! declare -F _get_comp_words_by_ref _filedir >/dev/null 2>&1; then
    __agentos_init_completion()
    {
        COMPREPLY=()
        read -r -a words <<<"${COMP_LINE:0:COMP_POINT}"
        case ${COMP_LINE:0:COMP_POINT} in *[[:space:]]) words+=("") ;; esac
        cword=$((${#words[@]} - 1))
        cur=${words[cword]}
        prev=${words[cword > 0 ? cword - 1 : 0]}
    }
    _filedir()
    {
        local IFS=$'\n'
        COMPREPLY=($(compgen "${1:--f}" -- "$cur")) # -d: directories
        compopt -o filenames
    }
fi
`

// writeMan writes one page for c and each command below it, as NAME-SUB.1.
func writeMan(c *cobra.Command, dir string) error {
	if c.Hidden {
		return nil
	}
	c.InitDefaultHelpFlag()
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	if err := os.WriteFile(filepath.Join(dir, name+".1"), manPage(c, name), 0o644); err != nil {
		return fmt.Errorf("write manual: %w", err)
	}
	for _, sub := range c.Commands() {
		if err := writeMan(sub, dir); err != nil {
			return err
		}
	}
	return nil
}

// manPage is the page of one command in the man macros (groff_man(7)). It has no
// date: the same build writes the same bytes.
func manPage(c *cobra.Command, name string) []byte {
	var b bytes.Buffer
	section := func(title string) { fmt.Fprintf(&b, ".SH %s\n", title) }
	literal := func(text string) { fmt.Fprintf(&b, ".nf\n%s\n.fi\n", roff(strings.TrimRight(text, "\n"))) }
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"agentos\" \"AgentOS manual\"\n", strings.ToUpper(roff(name)))
	section("NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", roff(name), roff(c.Short))
	section("SYNOPSIS")
	fmt.Fprintf(&b, "%s\n", roff(c.UseLine()))
	section("DESCRIPTION")
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	literal(text)
	flags(&b, "OPTIONS", c.LocalFlags())
	flags(&b, "INHERITED OPTIONS", c.InheritedFlags())
	if c.Example != "" {
		section("EXAMPLES")
		literal(c.Example)
	}
	section("EXIT STATUS")
	b.WriteString("0 on success; 125 if AgentOS failed, 126 if the policy refused, 127 if a command was not found; with\n.B agentos run\nand\n.B agentos exec\nthe status of the command itself.\n")
	var also []string
	if c.HasParent() {
		also = append(also, strings.ReplaceAll(c.Parent().CommandPath(), " ", "-"))
	}
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			also = append(also, strings.ReplaceAll(sub.CommandPath(), " ", "-"))
		}
	}
	if len(also) > 0 {
		section("SEE ALSO")
		for i, a := range also {
			end := ","
			if i == len(also)-1 {
				end = ""
			}
			fmt.Fprintf(&b, ".BR %s (1)%s\n", roff(a), end)
		}
	}
	return b.Bytes()
}

func flags(b *bytes.Buffer, title string, set *pflag.FlagSet) {
	if !set.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(b, ".SH %s\n", title)
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		kind, usage := pflag.UnquoteUsage(f)
		b.WriteString(".TP\n")
		if f.Shorthand != "" {
			fmt.Fprintf(b, "\\fB\\-%s\\fR, ", f.Shorthand)
		}
		fmt.Fprintf(b, "\\fB\\-\\-%s\\fR", roff(f.Name))
		if kind != "" {
			fmt.Fprintf(b, " \\fI%s\\fR", roff(kind))
		}
		fmt.Fprintf(b, "\n%s\n", roff(usage))
	})
}

// roff escapes text: backslashes, hyphens, and dots and quotes that begin a line.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
