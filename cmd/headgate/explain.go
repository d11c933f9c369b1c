package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/ruledoc"
)

// askTimeout is for a person who waits, not for a request.
const askTimeout = 5 * time.Second

// explainOptions are the flags.
type explainOptions struct {
	rules                                      []string
	redis, namespace, secretFile, passwordFile string
	cost                                       int64
	all                                        bool
}

func newExplain(p *program) *cobra.Command {
	var o explainOptions
	cmd := &cobra.Command{
		Use:   "explain --rules PATH [flags] [METHOD] [PATH] [name=value...]",
		Short: "Say whether a request would be refused now, by which rule, and why",
		Long: `Say whether a request would be refused now, by which rule, and why. Nothing is charged.

The request is what you know of it: a method, a path, and attributes as name=value. They are read as a server would; an
api_key is hashed and never shown.

Exit code: 0 it would pass; 1 it would be refused; 2 the rules or Redis cannot be asked.`,
		Example: "  headgate explain --rules rules/ --redis redis://127.0.0.1:6379 POST /api/v1/login ip=203.0.113.7",
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := readQuestion(args)
			switch {
			case err != nil:
				return usage(cmd, err)
			case len(o.rules) == 0:
				return usage(cmd, errors.New("say where the rules are: --rules PATH"))
			case o.cost < 1 || o.cost > headgate.MaxCost:
				return usage(cmd, fmt.Errorf("--cost %d: write 1 to %d", o.cost, headgate.MaxCost))
			case o.redis == "" && (o.namespace != "" || o.passwordFile != "" || o.secretFile != ""):
				return usage(cmd, errors.New("say which Redis to ask: --redis ADDRESS"))
			}
			if o.redis != "" && !strings.Contains(o.redis, "://") {
				o.redis = "redis://" + o.redis
			}
			r, err := explain(cmd.Context(), &o, q)
			if err == nil && !r.Allowed {
				return p.end(r, no())
			} else if err != nil {
				return err
			}
			return p.end(r, nil)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&o.rules, "rules", nil, "`PATH` of a rule file or a directory of them; may be repeated")
	flags.StringVar(&o.redis, "redis", "", "`ADDRESS` of Redis: redis://host:6379, sentinel://…/master, cluster://…")
	flags.StringVar(&o.namespace, "namespace", "", "`NAME` under which the servers count")
	flags.StringVar(&o.secretFile, "secret-file", "", "`FILE` with the servers' secret for subjects, if they have one")
	flags.StringVar(&o.passwordFile, "redis-password-file", "", "`FILE` with the password of Redis")
	flags.Int64Var(&o.cost, "cost", 1, "multiply what the rules say the request costs by `N`")
	flags.BoolVar(&o.all, "all", false, "show all rules that do not apply")
	return cmd
}

// explain asks the rules, and Redis if there is one.
func explain(ctx context.Context, o *explainOptions, q *question) (*explainReport, error) {
	document, err := ruledoc.Load(o.rules...)
	if err != nil {
		return nil, err
	}
	secret, err := readSecret(o.secretFile)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var store headgate.Store = memstore.New(memstore.Options{})
	var redis *redisstore.Store
	if o.redis != "" {
		if redis, err = openRedis(ctx, o); err != nil {
			return nil, err
		}
		defer redis.Close()
		store = redis
	}
	limiter := headgate.NewLimiter(store, document.Rules, headgate.Options{Secret: secret})
	if err := document.Apply(limiter); err != nil {
		return nil, err
	}
	explanation, err := limiter.Explain(ctx, headgate.Request{Attributes: q.attributes, Cost: o.cost})
	if err != nil {
		return nil, fmt.Errorf("%s did not answer: %w", redact(o.redis), err)
	}
	q.compare(document)
	return newExplainReport(&explanation, q, o, redis), nil
}

// compare notes what is odd about the request in view of the rules.
func (q *question) compare(d *ruledoc.Document) {
	looksAt := d.Rules.Attributes()
	if slices.Contains(looksAt, "client") {
		looksAt = append(looksAt, "api_key", "user", "ip")
	}
	inTheClear := func(what, key string) {
		if key != "" && key == q.key {
			q.note("the %s has this api_key in the clear and is not found: write %s", what, identity.HashKey(key))
		}
	}
	for _, o := range d.Overrides {
		inTheClear("override of "+o.Rule, o.Subject["api_key"])
	}
	for _, x := range d.Exemptions {
		if looksAt = append(looksAt, x.Attribute); x.Attribute == "api_key" {
			inTheClear("exemption from "+cmp.Or(x.Rule, "all rules"), x.Value)
		}
	}
	if idle := missing(q.names, looksAt); len(idle) > 0 {
		q.note("no rule looks at %s", sentence(idle))
	}
}

func openRedis(ctx context.Context, o *explainOptions) (*redisstore.Store, error) {
	password, err := readSecret(o.passwordFile)
	if err != nil {
		return nil, err
	}
	options := redisstore.Options{Address: o.redis, Namespace: o.namespace, Password: string(password)}
	store, err := redisstore.New(options) //nolint:contextcheck // the store outlives the call that opens it
	if err != nil {
		return nil, err
	}
	if err := store.Ready(ctx); err != nil {
		store.Close()
		return nil, err
	}
	return store, nil
}

// readSecret reads a file without the end of its last line, which editors add. No name is no secret.
func readSecret(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file) //nolint:gosec // G304: whoever runs the program says where the secret is
	if data = bytes.TrimRight(data, "\r\n"); err == nil && len(data) == 0 {
		err = fmt.Errorf("%s is empty", file)
	}
	return data, err
}

// redact is an address fit for the screen: without user and password.
func redact(address string) string {
	scheme, rest, _ := strings.Cut(address, "://")
	return scheme + "://" + rest[strings.LastIndexByte(rest, '@')+1:]
}
