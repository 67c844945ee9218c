#!/bin/sh
# Does the jobs of Images with vipsthumbnail; see images-worker.md.
#
#   OBJECTS=…/objects/millrace docs/thumbs.sh --concurrency 2
#
# starts a worker, which runs this script for each job: the job comes on standard input, the result goes to standard
# output. Exit code 65 says that the picture is at fault, so that the job fails for good; 127, that this machine cannot
# make any picture, so that the job goes back and the worker stops; any other lets it be tried again.
set -eu

for needed in vips vipsheader vipsthumbnail jq; do
  command -v "$needed" >/dev/null && continue
  echo "$0 needs $needed, which is not on this machine (Debian: libvips-tools, jq)" >&2
  exit 127
done
if [ -z "${MILLRACE_RUN_ID:-}" ]; then # started by hand
  [ -d "${OBJECTS:-}" ] || { echo "OBJECTS is not the directory of the server's objects" >&2; exit 2; }
  exec millrace work --contract images "$@" process_file delete_file -- "$0"
fi

job=$(cat)
of_job() { printf '%s' "$job" | jq -er "$1"; }

if [ "$(of_job .type)" = delete_file ]; then
  prefix=$(of_job .prefix)
  rm -rf "${OBJECTS:?}/$prefix" # the server looks whether that is true
  exit
fi

original=$OBJECTS/$(of_job .storageKey)
# The picture is at fault where it can be read and cannot be decoded.
broken() {
  cat "$original" >/dev/null || exit 1
  vips avg "$original" >/dev/null && exit 1
  case $? in
    126 | 127) exit 127 ;; # nothing was decoded
    1) echo "not a picture" >&2; exit 65 ;;
    *) exit 1 ;;
  esac
}
case $(vipsheader -f vips-loader "$original" || true) in
  jpegload*) mime=image/jpeg ext=.jpg ;;
  pngload*) mime=image/png ext=.png ;;
  gifload*) mime=image/gif ext=.png ;;
  webpload*) mime=image/webp ext=.png ;;
  '') broken ;;
  *) echo "not a supported picture" >&2; exit 65 ;;
esac
width=$(vipsheader -f width "$original") height=$(vipsheader -f height "$original")
case $(vipsheader -f orientation "$original" 2>/dev/null || true) in
  [5-8]) set -- "$height" "$width" ;; # it lies on its side
  *) set -- "$width" "$height" ;;
esac
upright="\"width\":$1,\"height\":$2"

variants=
for pair in $(of_job '[.requestedSizes, .variantKeys] | transpose[] | "\(.[0])=\(.[1])"'); do
  size=${pair%%=*} key=${pair#*=}$ext
  temporary=$OBJECTS/../.temp/${MILLRACE_RUN_ID}-$size$ext
  # "SIZExSIZE>" never enlarges; strip takes the metadata away; the picture is turned the right way up.
  vipsthumbnail "$original" --size "${size}x${size}>" -o "$temporary[strip]" >&2 || broken
  chmod 600 "$temporary"
  mv "$temporary" "$OBJECTS/$key" # whole or not at all
  set -- $(vipsheader -f width "$OBJECTS/$key") $(vipsheader -f height "$OBJECTS/$key") $(wc -c <"$OBJECTS/$key")
  variants="$variants{\"size\":$size,\"width\":$1,\"height\":$2,\"bytes\":$3,\"key\":\"$key\"},"
done
printf '{"mime_type":"%s",%s,"variants":[%s]}\n' "$mime" "$upright" "${variants%,}"
