package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/headgate/headgate/internal/testenv"
)

const cutEvery = 300 * time.Millisecond

// behindProxy starts one server that nodes reach through a proxy.
func behindProxy(w *world) {
	standalone(aof...)(w)
	zerolog.SetGlobalLevel(zerolog.Disabled) // parts of toxiproxy have their own loggers
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	w.proxy = toxiproxy.NewProxy(server, "redis", "127.0.0.1:0", w.redis.Addr())
	testenv.NoError(w, w.proxy.Start())
	w.Cleanup(w.proxy.Stop)
	w.address = "redis://" + w.proxy.Listen
}

// toxic applies a toxic of the proxy for a time.
func (w *world) toxic(how string, length time.Duration) {
	_, err := w.proxy.Toxics.AddToxicJson(strings.NewReader(`{"name":"toxic",` + how + `}`))
	testenv.NoError(w, err)
	w.Sleep(length)
	testenv.NoError(w, w.proxy.Toxics.RemoveToxic(context.Background(), "toxic"))
}

// delay adds latency to every response.
func delay(w *world) {
	w.mark("200 ms latency")
	defer w.mark("latency removed")
	w.toxic(`"type":"latency","attributes":{"latency":200}`, faultLength)
}

const (
	// chokedRate is the number of calls a second that a slow Redis serves; each has chokedCall bytes.
	chokedRate = 500
	chokedCall = 190
	// busyShare is how much more than the limit may be admitted while Redis decides some requests and local fallback shares
	// decide others, which are charged later.
	busyShare = 1
)

// choke limits the bandwidth to what a Redis that is twenty times too slow for the load would serve.
func choke(w *world) {
	w.mark("a 20th of the bandwidth")
	defer w.mark("full bandwidth")
	w.toxic(fmt.Sprintf(`"type":"bandwidth","stream":"upstream","attributes":{"rate":%d}`, chokedRate*chokedCall/1000), faultLength)
}

// reset repeatedly resets all connections. Between two resets they work.
func reset(w *world) {
	w.mark("resets")
	defer w.mark("end of resets")
	w.every(cutEvery, faultLength, w.cut)
}

// cut resets every connection that transfers a response.
func (w *world) cut() { w.toxic(`"type":"reset_peer"`, 20*time.Millisecond) }
