#!/bin/sh
# Release gates at work: six runs, and the exit code of each. Run it in the project's folder:
#   sh docs/gates_demo.sh [FOLDER FOR RESULTS]
set -u
results=${1:-agentcompass-results}
demo=example_suites/gates_demo
wrong=0

# try EXPECTED-CODE NAME AGENT [MORE OPTIONS...]
try() {
    expected=$1 name=$2 agent=$3
    shift 3
    echo
    echo "##### $name"
    "${PYTHON:-python3}" -m pytest -q -p no:cacheprovider --tb=no --no-summary \
        --agentcompass benchmark=tasks benchmark.path=$demo/squares.yaml harness=scripted \
        --agentcompass-config=$demo/agents/"$agent".yaml \
        --agentcompass-results="$results" --agentcompass-run-id="$name" \
        --agentcompass-gate='pass@1 >= 0.7' "$@"
    code=$?
    if [ $code -ne "$expected" ]; then
        echo "##### $name: exit code $code, expected $expected"
        wrong=1
    fi
}

against="--agentcompass-baseline=$results/run/baseline --agentcompass-gate=no_regression(pass@1)"

try 0 baseline baseline                      # becomes the baseline of the others
try 0 equal equal $against                   # as good: PASS
try 1 worse worse $against                   # ten tasks broken: FAIL
try 11 unsure equal '--agentcompass-gate=pass@1 >= 0.8; confidence: 0.95'   # 24 tasks cannot show it
try 12 outage outage $against                # three attempts without a verdict: INVALID
try 12 partial equal $against -k small       # half of the suite: INVALID

echo
"${PYTHON:-python3}" -m pytest_agentcompass compare --results "$results" baseline equal worse outage || wrong=1
exit $wrong
