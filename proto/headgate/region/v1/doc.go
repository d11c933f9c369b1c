// Package regionv1 contains the messages and the service of the protocol between regions, generated from region.proto by
// tools/proto.sh. Package regiongrpc implements both ends of it.
package regionv1
