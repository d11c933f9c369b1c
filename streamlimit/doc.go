// Package streamlimit limits the messages of long-lived streams: WebSockets, server-sent events, or any other connection that carries
// many messages. It knows when a message may pass, must wait, or ends its connection, and with which close code. It does not know a
// WebSocket library, how clients are identified, or rules and counters, which are the job of its Checker.
//
//	limits, err := streamlimit.New(limiter, streamlimit.Options{
//		Connection: headgate.Limit{Count: 240, Window: time.Minute, Burst: 20},
//	})
//
//	gate := limits.Open(attributes) // one per connection
//	for {
//		_, payload, err := conn.Read(ctx)
//		if err != nil {
//			return err
//		}
//		switch v := gate.Message(ctx, len(payload)); v.Action {
//		case streamlimit.Drop:
//			continue
//		case streamlimit.Close:
//			return conn.Close(websocket.StatusCode(v.Code), v.Reason)
//		}
//		// use the payload
//	}
//
// # Two limits
//
// A message must fit two kinds of limits. Options.Connection is a limit of each connection, which is counted in memory: it costs some
// hundred nanoseconds and calls no store. The rules of the Checker are limits of each client, over all of its connections and all
// nodes: without them, a client evades the limit of a connection by opening several.
//
// The Checker decides a message as a request that has the connection's attributes and
//
//   - descriptor.message: "received", unless the attributes passed to Open already have another value, such as "sent".
//   - descriptor.bytes: the size of the message, if it is known and a rule uses it. A rule with cost: {from: descriptor.bytes} counts
//     bytes instead of messages. An empty message costs 1.
//
// All rules that match such a request apply, including rules that do not mention descriptor.message: they count messages like
// requests. A rule only for messages has the condition descriptor.message: received, and a rule only for requests, such as the upgrade
// of a WebSocket, has descriptor.message: {absent: true}.
//
// If no rule matches the messages of a connection, they are not checked again until the rules change.
//
// Concurrency limits do not apply to messages. Apply them to connections: see CloseFor.
//
// # Excess
//
// With Delay, the default, Message blocks until the message fits. The caller does not read in the meantime, so the connection's flow
// control slows the client. A message that does not fit within Options.MaxDelay closes the connection at once, because waiting would
// not help. With Drop, the caller skips the message. With Close, the first message in excess closes the connection.
//
// If several goroutines use one Gate, their messages pass in the order of arrival.
//
// Leaky buckets delay a message as their rule says (max_delay), whatever the options say.
//
// # Close codes
//
//   - 1008 (policy violation): the client sends too many messages, or a message that no limit can ever allow.
//   - 1013 (try again later): the store is unavailable and a rule denies then, or a concurrency limit has no free slot.
//   - 1001: the context ended while the message waited.
//
// # What is not counted
//
// A message counts when the program has received it completely. Set the library's limit on the size of a message, because fragments of
// a message that never ends are not counted. Control frames are usually handled by the library: count pings with Gate.Message in the
// library's ping handler.
package streamlimit
