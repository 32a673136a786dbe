// Package problem is the one error type that reaches a caller of the HTTP API,
// with the one table from codes to HTTP status (RFC 9457, api/openapi.yaml).
package problem

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Code names a kind of problem. It stands in the answer as `code` and in its
// `type` as urn:holdfast:problem:<code>.
type Code string

// The codes of the contract. Internal is the only one that a caller cannot
// have caused.
const (
	BadRequest          Code = "bad-request"
	BadSignature        Code = "bad-signature"
	Unauthenticated     Code = "unauthenticated"
	BadToken            Code = "bad-token"
	Forbidden           Code = "forbidden"
	AdmitRequired       Code = "admit-required"
	AdmitExpired        Code = "admit-expired"
	AdmitOther          Code = "admit-other"
	NotFound            Code = "not-found"
	SeatTaken           Code = "seat-taken"
	SoldOut             Code = "sold-out"
	StandbyFirst        Code = "standby-first"
	LimitReached        Code = "limit-reached"
	HoldEnded           Code = "hold-ended"
	WrongState          Code = "wrong-state"
	SaleClosed          Code = "sale-closed"
	InProgress          Code = "in-progress"
	RoomReset           Code = "room-reset"
	Unprocessable       Code = "invalid"
	IdempotencyMismatch Code = "idempotency-mismatch"
	NotOpenYet          Code = "not-open-yet"
	TooManyRequests     Code = "too-many-requests"
	Paused              Code = "paused"
	Unavailable         Code = "unavailable"
	Internal            Code = "internal"
)

type kind struct {
	status int
	title  string
}

// kinds is the one table from codes to status and title.
var kinds = map[Code]kind{
	BadRequest:          {http.StatusBadRequest, "Bad request"},
	BadSignature:        {http.StatusBadRequest, "Bad signature"},
	Unauthenticated:     {http.StatusUnauthorized, "Sign in first"},
	BadToken:            {http.StatusUnauthorized, "Token not accepted"},
	Forbidden:           {http.StatusForbidden, "Not allowed"},
	AdmitRequired:       {http.StatusForbidden, "Admission required"},
	AdmitExpired:        {http.StatusForbidden, "Admission has ended"},
	AdmitOther:          {http.StatusForbidden, "Admission is for another room or account"},
	NotFound:            {http.StatusNotFound, "Not found"},
	SeatTaken:           {http.StatusConflict, "Seat taken"},
	SoldOut:             {http.StatusConflict, "Sold out"},
	StandbyFirst:        {http.StatusConflict, "Offered to standby first"},
	LimitReached:        {http.StatusConflict, "Limit reached"},
	HoldEnded:           {http.StatusConflict, "The hold has ended"},
	WrongState:          {http.StatusConflict, "Not possible in this state"},
	SaleClosed:          {http.StatusConflict, "Sale closed"},
	InProgress:          {http.StatusConflict, "Still in progress"},
	RoomReset:           {http.StatusGone, "The room was reset"},
	Unprocessable:       {http.StatusUnprocessableEntity, "Invalid input"},
	IdempotencyMismatch: {http.StatusUnprocessableEntity, "Idempotency-Key used with another body"},
	NotOpenYet:          {http.StatusTooEarly, "Not open yet"},
	TooManyRequests:     {http.StatusTooManyRequests, "Too many requests"},
	Paused:              {http.StatusServiceUnavailable, "Paused"},
	Unavailable:         {http.StatusServiceUnavailable, "Temporarily unavailable"},
	Internal:            {http.StatusInternalServerError, "Internal error"},
}

// Status is the HTTP status of a code; an unknown code is 500.
func (c Code) Status() int {
	if k, ok := kinds[c]; ok {
		return k.status
	}
	return http.StatusInternalServerError
}

// Title is the short English title of a code, a key of the text catalogue.
func (c Code) Title() string { return kinds[c].title }

// Codes lists every code of the table, in no order.
func Codes() []Code {
	all := make([]Code, 0, len(kinds))
	for c := range kinds {
		all = append(all, c)
	}
	return all
}

// Field is one wrong field of the input and what would be right.
type Field struct {
	Field  string
	Format string
	Args   []any
}

// Error is a refusal with its code. Format is English and a key of the text
// catalogue, so that the answer can be written in the caller's language.
type Error struct {
	Code       Code
	Format     string
	Args       []any
	Fields     []Field
	RetryAfter time.Duration // shown as Retry-After, whole seconds rounded up
	Cause      error         // logged, never shown
	Replay     bool          // the same refusal as before, by its Idempotency-Key
}

// Error is the English text, for logs.
func (e *Error) Error() string {
	s := string(e.Code)
	if e.Format != "" {
		s += ": " + fmt.Sprintf(e.Format, e.Args...)
	}
	for _, f := range e.Fields {
		s += "; " + f.Field + ": " + fmt.Sprintf(f.Format, f.Args...)
	}
	if e.Cause != nil {
		s += " (" + e.Cause.Error() + ")"
	}
	return s
}

// Unwrap gives the hidden cause to errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.Cause }

// After sets Retry-After.
func (e *Error) After(d time.Duration) *Error { e.RetryAfter = d; return e }

// Because keeps the cause for the log.
func (e *Error) Because(err error) *Error { e.Cause = err; return e }

// And adds another wrong field.
func (e *Error) And(field, format string, args ...any) *Error {
	e.Fields = append(e.Fields, Field{Field: field, Format: format, Args: args})
	return e
}

// New is a refusal with an English detail (a key of the text catalogue).
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Format: format, Args: args}
}

// Invalid is a 422 for one field: format says what would be right.
func Invalid(field, format string, args ...any) *Error {
	return New(Unprocessable, "The field %s is not right.", field).And(field, format, args...)
}

// Malformed is a 400 for a request that cannot be read, naming the field.
func Malformed(field, format string, args ...any) *Error {
	return New(BadRequest, "The field %s cannot be read.", field).And(field, format, args...)
}

// From turns any error into a problem; one that is none becomes Internal with
// the error as its hidden cause.
func From(err error) *Error {
	var p *Error
	if errors.As(err, &p) {
		return p
	}
	return New(Internal, "Something went wrong on our side.").Because(err)
}

// Is says whether err is a problem with this code.
func Is(err error, code Code) bool {
	var p *Error
	return errors.As(err, &p) && p.Code == code
}
