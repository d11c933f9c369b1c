package client

import "context"

// tokenKey is the metadata that servers look for a caller's token in.
const tokenKey = "x-headgate-token"

// token is credentials.PerRPCCredentials.
type token string

func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{tokenKey: string(t)}, nil
}

// RequireTransportSecurity is false: whether the network between services is trusted is for those to say who run them.
func (t token) RequireTransportSecurity() bool { return false }
