package admin

import (
	"strconv"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// Files are those that a contract keeps, for the pages of the console.

// Files returns the files of this node; nil where no contract keeps any.
func (a *API) Files() contract.Files {
	for _, c := range a.Contracts {
		if c.Files != nil {
			return c.Files
		}
	}
	return nil
}

var errNoFile = &job.Error{Kind: job.NotFound, Op: "admin.file", Msg: "there is no such file"}

var filePages = newPages(httpapi.Named("files", httpapi.ByNumber))

// ListFiles returns the files that the query of a call asks for, and the cursor of the next page.
func (a *API) ListFiles(c *httpapi.Call) (page []contract.File, next string, err error) {
	limit, before, err := filePages.Read(c)
	if err != nil {
		return nil, "", err
	}
	files := a.Files()
	if files == nil {
		return nil, "", nil
	}
	page, last, err := files.List(c.Context(), before, limit)
	if last > 0 {
		next = filePages.Cursor.Format(last)
	}
	return page, next, err
}

// PathFile returns the file of the path of a call.
func (a *API) PathFile(c *httpapi.Call) (contract.File, error) {
	files := a.Files()
	if files == nil {
		return contract.File{}, errNoFile
	}
	return files.Get(c.Context(), c.PathValue("id"))
}

// SendVariant answers with the picture of the path of a call, to those who see what jobs carry.
func (a *API) SendVariant(c *httpapi.Call) error {
	files := a.Files()
	size, err := strconv.Atoi(c.PathValue("size"))
	switch {
	case !bool(a.disclosureTo(c)):
		return errHidden
	case files == nil || err != nil:
		return errNoFile
	}
	body, modified, mime, err := files.Open(c.Context(), c.PathValue("id"), size)
	if err != nil {
		return err
	}
	defer body.Close()
	// A picture is sent whole, whatever of it is asked for.
	for _, name := range []string{"Range", "If-Match", "If-Unmodified-Since"} {
		c.Request.Header.Del(name)
	}
	c.Header().Set("Content-Type", mime)
	return c.SendContent(modified, body)
}
