# For the commands of docs/demo.md with containers. In the root of the clone: . deploy/compose/env.sh
API=http://127.0.0.1:${API_PORT:-8000}
PROMETHEUS=http://127.0.0.1:${PROMETHEUS_PORT:-9090}
demo() { docker compose -f deploy/compose/compose.yaml "$@"; }
headgate() { demo run --rm cli "$@"; }
