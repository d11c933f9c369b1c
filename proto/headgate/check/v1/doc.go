// Package checkv1 is the check API on the wire: the messages and the service of check.proto, generated from it by
// tools/proto.sh. It knows what is asked and answered. It does not know how that is decided, nor how to use it well:
// package client does.
package checkv1
