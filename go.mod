module github.com/headgate/headgate

go 1.26

require (
	github.com/MicahParks/keyfunc/v3 v3.8.2
	github.com/anishathalye/porcupine v1.3.1
	github.com/golang-jwt/jwt/v5 v5.3.1
	github.com/redis/rueidis v1.0.79
	go.uber.org/goleak v1.3.0
)

require (
	github.com/MicahParks/jwkset v0.11.3 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/time v0.15.0 // indirect
)
