// Package examples embeds the files of the examples that headgate init writes, so that there is one copy of each.
package examples

import "embed"

// Files has the files by their path below examples/.
//
//go:embed gateways/headgate.yaml gateways/rules.yaml
//go:embed caddy/Caddyfile envoy/envoy.yaml haproxy/haproxy.cfg haproxy/headgate.lua nginx/headgate.conf nginx/nginx.conf
//go:embed library/main.go
var Files embed.FS
