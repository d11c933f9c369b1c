// Package checkv1 contains the messages and the service of the check API, generated from check.proto by tools/proto.sh.
// Package checkgrpc implements the service, and package client is the recommended client.
package checkv1
