package cli

import (
	"encoding/json"
	"errors"
	"fmt"
)

// JSONError returns the error of text that is not JSON, with the byte where it ends to be it, in
// place of the decoder's own text. Other errors are returned as they are.
func JSONError(err error) error {
	var wrong *json.SyntaxError
	switch {
	case !errors.As(err, &wrong):
		return err
	case wrong.Error() == "unexpected end of JSON input":
		return fmt.Errorf("unexpected end at byte %d", wrong.Offset)
	}
	return fmt.Errorf("unexpected character at byte %d", wrong.Offset)
}

// UnknownMember returns the member that a decoder has refused because of DisallowUnknownFields.
func UnknownMember(err error) (name string, ok bool) {
	_, scanErr := fmt.Sscanf(err.Error(), "json: unknown field %q", &name)
	if scanErr != nil {
		return "", false
	}
	return name, true
}
