// Package console is the web console of operators: pages under /console, made on the server from
// templates, which work without JavaScript.
//
//	request ─▶ package admin: session or token, origin, audit
//	           │
//	           ▼
//	         page   the function of package admin that the API calls ─▶ view ─▶ template
//	         form   … the change with its entry of the audit ─▶ 303 to a page
//
// A page's address has all of its state: filters, the cursor of a page of a list. The parameters
// have the names and the meaning that they have in the API's routes. An empty parameter, which
// browsers send for the empty field of a form, is as one that is left out.
//
// All text goes through the escaping of html/template. What control characters and marks of
// direction would do to a page is shown, not done (shown, format.go).
//
// The one script (script.js) exchanges the parts of a page that have data-live for those of a newer
// one, and handles keys. The style sheet has all colours; nothing is inline, as the policy of
// package admin permits nothing inline.
package console
