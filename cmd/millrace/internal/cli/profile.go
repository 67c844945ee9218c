package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/setting"
)

// DefaultProfile is the profile of commands for operators that name no server at all.
const DefaultProfile = "default"

// Profile is a server that an operator has logged in to (CL-004).
type Profile struct {
	// Server is its URL.
	Server string `json:"server"`
	// Token is the operator's token, or the read token.
	Token string `json:"token"`
	// CACert is a file of certificates to trust besides those of the system; "" for none.
	CACert string `json:"cacert,omitempty"`
}

// profileFile returns the path of the file that has the profiles, in the user's configuration
// folder.
func profileFile() (string, error) {
	folder, err := os.UserConfigDir()
	if err != nil {
		return "", UnableError("there is no folder for profiles: %v", err)
	}
	return filepath.Join(folder, "millrace", "profiles.json"), nil
}

// readProfiles returns all profiles by name, none where there is no file or no folder for one.
func readProfiles() (map[string]Profile, error) {
	all := map[string]Profile{}
	path, err := profileFile()
	if err != nil {
		return all, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, UnableError("the profiles cannot be read: %v", err)
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, UnableError("the profiles in %s cannot be read: %v", path, JSONError(err))
	}
	return all, nil
}

// firstProfile returns the default profile, else the first by name; the empty name for none.
func firstProfile() (name string, f Profile) {
	all, err := readProfiles()
	if err != nil || len(all) == 0 {
		return "", f
	}
	name = slices.Sorted(maps.Keys(all))[0]
	if _, hasDefault := all[DefaultProfile]; hasDefault {
		name = DefaultProfile
	}
	return name, all[name]
}

// Admin returns the admin API of the profile's server.
func (f Profile) Admin(p Process) (*client.Admin, error) {
	remote := RemoteFlags{cacert: f.CACert}
	transport, err := remote.Transport(p)
	if err != nil {
		return nil, err
	}
	return remote.admin(transport, f.Server, f.Token)
}

// FindProfile returns a profile. Without one of that name it is a usage error.
func FindProfile(name string) (Profile, error) {
	all, err := readProfiles()
	if err != nil {
		return Profile{}, err
	}
	found, ok := all[name]
	if !ok {
		hint := "'millrace login' makes one"
		if similar, ok := setting.Closest(name, slices.Sorted(maps.Keys(all))); ok {
			hint = fmt.Sprintf("did you mean %q?", similar)
		}
		return found, UsageError("there is no profile %q; %s", name, hint)
	}
	return found, nil
}

// SaveProfile adds a profile, in the place of one of its name, or removes it for nil. Only the user
// can read the file.
func SaveProfile(name string, added *Profile) error {
	all, err := readProfiles()
	if err != nil {
		return err
	}
	path, err := profileFile()
	if err != nil {
		return err
	}
	if added != nil {
		all[name] = *added
	} else {
		delete(all, name)
	}
	if err := writeProfiles(path, all); err != nil {
		return UnableError("the profile cannot be stored: %v", err)
	}
	return nil
}

// writeProfiles writes the file, whole or not at all. A file made by os.CreateTemp has mode 0600.
func writeProfiles(path string, all map[string]Profile) error {
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), "profiles-*")
	if err != nil {
		return err
	}
	_, err = file.Write(append(text, '\n'))
	return MoveInPlace(file.Name(), path, errors.Join(err, file.Close()))
}
