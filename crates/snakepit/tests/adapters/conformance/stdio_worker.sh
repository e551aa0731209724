#!/bin/bash
# The first commands of docs/adapters-contract.md over lines of JSON (spec/stdio.md), in plain Bash.
LC_ALL=C
case $CONFORMANCE_WAY in
  never-ready) exec sleep infinity ;;
  ends-before-ready) echo "no, thank you" >&2; exit 3 ;;
esac

number() { local rest=${args#*"\"$1\":"}; echo "${rest%%[,\}]*}"; }
only() { local rest=${args#"{\"$1\":"}; echo "${rest%\}}"; }

echo '{"status":"ready","pid":'$$',"commands":["add","echo","fail"]}'
while IFS= read -r line; do
  id=${line#'{"id":'} id=${id%%,*}
  command=${line#*'"command":"'} command=${command%%\"*}
  args=${line#*'"args":'} args=${args%',"timeout_ms":'*}
  case $command in
    echo) printf '{"id":%s,"result":%s}\n' "$id" "$(only value)" ;;
    add) printf '{"id":%s,"result":%s}\n' "$id" $(($(number a) + $(number b))) ;;
    fail) printf '{"id":%s,"error":{"type":"ConformanceError","message":%s}}\n' "$id" "$(only message)" ;;
    *) printf '{"id":%s,"error":{"kind":"unknown_command","message":"there is no %s"}}\n' "$id" "$command" ;;
  esac
done
