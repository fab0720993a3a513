#!/usr/bin/env bash
# The server's page in a browser: that it holds a conversation, shows what the server does, and takes no text for markup.
#   page.sh MEGALITH [SCREENSHOT.png]
# Exits with 77 where there is no Chromium (Debian: chromium).
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
megalith=$1
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
  echo "[SKIP] there is no Chromium"
  exit 77
}
work=$(mktemp -d)
"$megalith" serve "$root/models/storyteller" --port 0 -t 1 --cors-origin '*' 2>"$work/err" &
server=$!
trap 'kill -9 $server 2>/dev/null || true; rm -rf "$work"' EXIT
for ((i = 0; i < 1200; ++i)); do
  grep -q '^serving ' "$work/err" && break
  kill -0 $server || { cat "$work/err"; exit 1; }
  sleep 0.1
done
url=$(grep -o 'http://[0-9.:]*' "$work/err" | head -1)

# The page with somebody who types; of its own it would do nothing. A browser looks at a page once all of it is loaded: of
# this one a picture is missing until the answer is there.
python3 - "$url" "$work/typed" <<'END' &
import http.server, sys, threading, urllib.request
url, named = sys.argv[1:]
page = urllib.request.urlopen(url + "/").read().decode()
page = page.replace("<head>", f'<head><base href="{url}/">')
answered = threading.Event()

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/page":
            answered.clear()
        if self.path == "/picture":
            answered.wait(40)
        if self.path == "/answered":
            answered.set()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        if self.path == "/page":
            self.wfile.write(page.encode())

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
here = f"http://127.0.0.1:{server.server_port}"
page = page.replace("</body>", f"""<img src="{here}/picture"><script>
  $("tokens").value = 12;
  $("temperature").value = 0;
  $("text").value = "Once upon a time <b id=bold>there</b>";
  $("send").click();
  setInterval(() => {{
    if (document.body.dataset.answered || !/Tokens made[1-9]/.test($("metrics").textContent)) return;
    document.body.dataset.answered = "yes";
    new Image().src = "{here}/answered";
  }}, 50);
</script></body>""")
open(named, "w").write(here + "/page")
server.serve_forever()
END
typist=$!
disown $typist
trap 'kill -9 $server $typist 2>/dev/null || true; rm -rf "$work"' EXIT
for ((i = 0; i < 100; ++i)); do [[ -s "$work/typed" ]] && break; sleep 0.1; done
open_page() {
  timeout 60 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1200,800 \
    --user-data-dir="$work/user" "$@" "$(<"$work/typed")" 2>"$work/browser.log"
}
open_page --dump-dom >"$work/dom"
expect() { # expect WHAT PATTERN
  grep -qz -- "$2" "$work/dom" && return
  echo "FAILED: $1: no \"$2\" in the page; the browser and the server say:"
  tail -n 5 "$work/browser.log" "$work/err"
  exit 1
}
expect "the model's name" '<b id="model">storyteller</b>'
expect "the answer has ended" 'data-answered="yes"'
expect "its figures" 'role="status">12 tokens, the first after [0-9]* ms, [0-9]* tokens/s<'
expect "the question, as text" 'class="turn user">Once upon a time &lt;b id=bold&gt;there&lt;/b&gt;</div>'
expect "an answer" 'class="turn assistant">[^<][^<]*</div>'
expect "what the server does" '<td>Tokens made</td><td>12</td>'
! grep -q '<b id="bold">' "$work/dom" || { echo "FAILED: text became markup"; exit 1; }
[[ $# -lt 2 ]] || open_page --screenshot="$2"
kill -TERM $server
wait $server
echo "page: $(grep -oz 'class="turn assistant">[^<]*' "$work/dom" | tr '\0\n' '  ' | cut -d'>' -f2)"
