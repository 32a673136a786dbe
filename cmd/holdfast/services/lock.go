package services

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
)

// Lock keeps a second platform off a data folder for as long as this process
// lives: the kernel lets go of it when the process ends, however it ends.
func Lock(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("another holdfast uses %s: stop it, or name another folder with --data", dir)
		}
		return nil, err
	}
	return func() { f.Close() }, nil
}

// EnsureApp makes the application's role on a server that was given by its
// owner's URL, with a password kept in the folder, and returns the role's URL.
// A role that is there already keeps its password, which must then be given.
func EnsureApp(ctx context.Context, ownerURL, dir string) (string, error) {
	u, err := url.Parse(ownerURL)
	if err != nil || u.Host == "" {
		return "", errors.New("--postgres-url must be postgres://USER:PASSWORD@HOST:PORT/DATABASE")
	}
	c, err := connect(ctx, ownerURL)
	if err != nil {
		return "", err
	}
	defer c.Close(ctx)
	file := filepath.Join(dir, "app.password")
	_, statErr := os.Stat(file)
	ours := statErr == nil
	var there bool
	if err := c.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)`, App).Scan(&there); err != nil {
		return "", err
	}
	if there && !ours {
		return "", fmt.Errorf("the role %s exists on that server: give its URL with --postgres-app-url", App)
	}
	password, err := kept(file, nil)
	if err != nil {
		return "", err
	}
	if !there {
		// kept's password is hexadecimal, so quoting it is safe.
		if _, err := c.Exec(ctx, `CREATE ROLE `+App+` LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD '`+password+`'`); err != nil {
			return "", fmt.Errorf("make the application's role: %w", err)
		}
	}
	u.User = url.UserPassword(App, password)
	return u.String(), nil
}
