// Command tryout uses the client generated from the admin API's OpenAPI document. The adminclient test builds it.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/headgate/headgate/bench/adminclient/testdata/tryout/adminclient"
)

func main() {
	if err := try(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func try(ctx context.Context, server, token string) error {
	client, err := adminclient.NewClientWithResponses(server, adminclient.WithRequestEditorFn(
		func(_ context.Context, r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+token)
			return nil
		}))
	if err != nil {
		return err
	}
	const body = `{"name": "default_per_key", "scope": "global", "algorithm": "sliding_window_counter", "maxRequests": 100, "windowSeconds": 60, "priority": 10}`
	created, err := client.CreateRuleWithBodyWithResponse(ctx, "application/json", strings.NewReader(body))
	if err != nil || created.JSON201 == nil {
		return fmt.Errorf("create: %v: %s", err, created.Body)
	}
	rule := created.JSON201
	if rule.Name != "default_per_key" || string(rule.Scope) != "global" || rule.MaxRequests != 100 || rule.WindowSeconds != 60 {
		return fmt.Errorf("the created rule is %+v", rule)
	}
	listed, err := client.ListRulesWithResponse(ctx, &adminclient.ListRulesParams{})
	if err != nil || listed.JSON200 == nil || len(listed.JSON200.Rules) != 1 {
		return fmt.Errorf("list: %v: %s", err, listed.Body)
	}
	gone, err := client.ReadRuleWithResponse(ctx, "no-such-rule")
	if err != nil || gone.ApplicationproblemJSONDefault == nil || gone.ApplicationproblemJSONDefault.Status != http.StatusNotFound {
		return fmt.Errorf("another rule: %v: %s", err, gone.Body)
	}
	fmt.Println("the rule came back as it was sent")
	return nil
}
