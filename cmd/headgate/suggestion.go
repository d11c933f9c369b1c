package main

import (
	"github.com/headgate/headgate/cmd/headgate/internal/shellwords"
	"github.com/headgate/headgate/internal/server/adminclient"
)

// suggestCommand returns a headgate command line that a user can paste into a shell. It quotes the words and repeats the flags
// that select the server. It contains the path of the token file, never a token.
func suggestCommand(c *adminclient.Client, words ...string) string {
	all := []string{"headgate", words[0], "--server", c.Server}
	for _, flag := range [][2]string{
		{"--token-file", c.TokenFile}, {"--ca-file", c.CAFile}, {"--cert-file", c.CertFile}, {"--key-file", c.KeyFile},
	} {
		if flag[1] != "" {
			all = append(all, flag[0], flag[1])
		}
	}
	return shellwords.Command(append(all, words[1:]...)...)
}
