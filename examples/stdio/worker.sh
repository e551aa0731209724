#!/usr/bin/env bash
# A worker in plain Bash that speaks spec/stdio.md: one call at a time, until its standard input is closed.
number='(-?[0-9]+)[,}]'
text='"(([^"\\]|\\.)*)"'

# The argument $1 of the form $2, as written in the JSON. Escapes in a text are kept, so the text can be sent back.
argument() {
  local pattern="\"$1\":$2"
  [[ $line =~ $pattern ]] && value=${BASH_REMATCH[1]} && return
  answer '"error":{"kind":"bad_argument","type":"TypeError","message":"'"$1"' is missing, or of another type"}'
  return 1
}

answer() { printf '{"id":%s,%s}\n' "$id" "$1"; }

printf '{"status":"ready","pid":%s,"language":"Bash %s","commands":["add","greet","count","fail"]}\n' $$ "$BASH_VERSION"
while IFS= read -r line; do
  # Other lines cancel calls, which are already answered when the line is read.
  [[ $line =~ ^\{\"id\":([0-9]+),\"command\":\"([^\"]*)\" ]] || continue
  id=${BASH_REMATCH[1]} command=${BASH_REMATCH[2]}
  case $command in
    add) argument a "$number" && a=$value && argument b "$number" && answer "\"result\":$((a + value))" ;;
    greet) argument name "$text" && echo "greeting somebody" >&2 && answer "\"result\":\"Hello, $value!\"" ;;
    count)
      argument n "$number" || continue
      for ((i = 0; i < value; i++)); do answer "\"item\":$i"; done
      answer '"end":true' ;;
    fail) argument message "$text" && answer '"error":{"type":"Failure","message":"'"$value"'"}' ;;
    *) answer '"error":{"kind":"unknown_command","message":"there is no command '"$command"'"}' ;;
  esac
done
