module github.com/headgate/headgate/examples/istio

go 1.26.0

require (
	github.com/goccy/go-yaml v1.19.2
	github.com/headgate/headgate v0.0.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/golang/protobuf v1.5.4 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20261019180522-ce908d29299b // indirect
	istio.io/api v1.31.1
)

replace github.com/headgate/headgate => ../..
