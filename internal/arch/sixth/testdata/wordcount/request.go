package wordcount

import "github.com/millrace/millrace/internal/httpapi"

// readText reads a body that is a text.
func readText(c *httpapi.Call) ([]byte, error) {
	text, err := c.Body()
	if err != nil {
		return nil, err
	}
	if len(text) == 0 {
		return nil, invalid("the text is empty")
	}
	return text, nil
}
