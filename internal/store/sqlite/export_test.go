package sqlite

// Schema is for the tests outside of the package.
var Schema = schema

// WithDriver makes a database be opened by a driver of database/sql under another name.
func WithDriver(c Config, name string) Config {
	c.driver = name
	return c
}

// WithPragmas makes a database be opened with more pragmas than those of Open.
func WithPragmas(c Config, pragmas ...string) Config {
	c.pragmas = pragmas
	return c
}
