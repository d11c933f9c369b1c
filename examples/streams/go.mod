module github.com/headgate/headgate/examples/streams

go 1.26.0

require (
	github.com/coder/websocket v1.8.15
	github.com/gorilla/websocket v1.5.3
	github.com/headgate/headgate v0.0.0
)

replace github.com/headgate/headgate => ../..
