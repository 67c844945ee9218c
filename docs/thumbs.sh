#!/bin/sh
# Makes the variants of an image job with vipsthumbnail; see images-worker.md.
#
#   OBJECTS=…/objects/millrace millrace work --contract images process_file -- ./thumbs.sh
#
# The job comes on standard input, the result goes to standard output. Exit code 65 says that the picture is at fault,
# so that the job fails for good.
set -eu
job=$(cat)
original=$OBJECTS/$(printf '%s' "$job" | jq -r .storageKey)
case $(vipsheader -f vips-loader "$original" 2>/dev/null) in
  jpegload*) mime=image/jpeg ext=.jpg ;;
  pngload*) mime=image/png ext=.png ;;
  gifload*) mime=image/gif ext=.png ;;
  webpload*) mime=image/webp ext=.png ;;
  *) echo "not a picture" >&2; exit 65 ;;
esac

variants=
for pair in $(printf '%s' "$job" | jq -r '[.requestedSizes, .variantKeys] | transpose[] | "\(.[0])=\(.[1])"'); do
  size=${pair%%=*} key=${pair#*=}$ext
  temporary=$OBJECTS/../.temp/${MILLRACE_RUN_ID}-$size$ext
  # "SIZExSIZE>" never enlarges; strip takes the metadata away; the picture is turned the right way up.
  vipsthumbnail "$original" --size "${size}x${size}>" -o "$temporary[strip]" >&2 || exit 65
  chmod 600 "$temporary"
  mv "$temporary" "$OBJECTS/$key" # whole or not at all
  set -- $(vipsheader -f width "$OBJECTS/$key") $(vipsheader -f height "$OBJECTS/$key") $(wc -c <"$OBJECTS/$key")
  variants="$variants{\"size\":$size,\"width\":$1,\"height\":$2,\"bytes\":$3,\"key\":\"$key\"},"
done
printf '{"mime_type":"%s","width":%s,"height":%s,"variants":[%s]}\n' "$mime" \
  "$(vipsheader -f width "$original")" "$(vipsheader -f height "$original")" "${variants%,}"
