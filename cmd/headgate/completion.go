package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/adminclient"
)

// completionTimeout bounds how long a shell waits for the names of rules.
const completionTimeout = 2 * time.Second

// addCompletions lets shells complete the values of flags and the arguments RULE.
func addCompletions(cmd *cobra.Command) {
	values := map[string][]string{
		"output": outputFormats, "log-level": logLevels, "mode": {"enforce", "shadow", "off"}, "from": {fromEnvoy},
		"sort": {byDenied, byNear, byRule, bySubject},
		"role": {string(adminapi.Viewer), string(adminapi.Editor), string(adminapi.Admin), string(adminapi.Self), string(adminapi.CallerRole)},
	}
	for name, list := range values {
		if flag := cmd.Flags().Lookup(name); flag != nil || cmd.PersistentFlags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
		}
	}
	if cmd.Flags().Lookup("rule") != nil {
		_ = cmd.RegisterFlagCompletionFunc("rule", completeRules) // as above
	}
	// Of "set RULE SUBJECT LIMIT", "add (RULE | --all) …"
	if words := strings.Fields(cmd.Use); len(words) > 1 && strings.Trim(words[1], "(") == "RULE" {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completeRules(cmd, args, word)
		}
	}
	for _, child := range cmd.Commands() {
		addCompletions(child)
	}
}

// completeRules returns the names of the server's rules that begin with a word. A shell shows no errors, so that there are no names if they cannot be read.
func completeRules(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, name := range ruleNames(cmd) {
		if strings.HasPrefix(name, word) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveNoFileComp
}

// ruleNames returns the names of the rules of --server or HEADGATE_SERVER.
func ruleNames(cmd *cobra.Command) (names []string) {
	var o adminclient.Options
	for flag, value := range map[string]*string{
		"server": &o.Server, "token-file": &o.TokenFile, "ca-file": &o.CAFile, "cert-file": &o.CertFile, "key-file": &o.KeyFile,
	} {
		*value, _ = cmd.Flags().GetString(flag) // empty without the flag
	}
	if serverFromEnv(cmd, &o); o.Server == "" {
		return nil
	}
	c, err := connect(o, completionTimeout)
	if err != nil {
		return nil
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	rules, err := c.Rules(ctx, false)
	if err != nil {
		return nil
	}
	for _, r := range rules {
		names = append(names, r.Name)
	}
	return names
}
