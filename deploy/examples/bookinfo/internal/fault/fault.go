package fault

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// Settings say what goes wrong and how often. The zero value is a healthy
// service.
type Settings struct {
	Latency        time.Duration // added to a request
	LatencyPercent float64       // of requests, 0 to 100
	ErrorPercent   float64       // of requests, 0 to 100
	ErrorStatus    int           // the HTTP status of those, 400 to 599
}

// wire is the JSON form of Settings; pointers tell absent from zero.
type wire struct {
	Latency        *string  `json:"latency,omitempty"`
	LatencyPercent *float64 `json:"latencyPercent,omitempty"`
	ErrorPercent   *float64 `json:"errorPercent,omitempty"`
	ErrorStatus    *int     `json:"errorStatus,omitempty"`
}

const maxLatency = time.Minute

// Validate names the field that is wrong and its rule.
func (s Settings) Validate() error {
	switch {
	case s.Latency < 0 || s.Latency > maxLatency:
		return fmt.Errorf("latency %s: must be 0s to %s", s.Latency, maxLatency)
	// Written so that NaN fails.
	case !(s.LatencyPercent >= 0 && s.LatencyPercent <= 100):
		return fmt.Errorf("latencyPercent %v: must be 0 to 100", s.LatencyPercent)
	case !(s.ErrorPercent >= 0 && s.ErrorPercent <= 100):
		return fmt.Errorf("errorPercent %v: must be 0 to 100", s.ErrorPercent)
	case s.ErrorPercent > 0 && (s.ErrorStatus < 400 || s.ErrorStatus > 599):
		return fmt.Errorf("errorStatus %d: must be 400 to 599", s.ErrorStatus)
	}
	return nil
}

// defaults fills in what a half-given setting means: an error percentage alone
// is of 500s, a latency alone is for every request.
func (w wire) settings() (Settings, error) {
	s := Settings{ErrorStatus: http.StatusInternalServerError, LatencyPercent: 100}
	if w.Latency != nil {
		d, err := time.ParseDuration(*w.Latency)
		if err != nil {
			return s, fmt.Errorf("latency %q: must be a duration such as 250ms", *w.Latency)
		}
		s.Latency = d
	}
	if w.LatencyPercent != nil {
		s.LatencyPercent = *w.LatencyPercent
	}
	if w.ErrorPercent != nil {
		s.ErrorPercent = *w.ErrorPercent
	}
	if w.ErrorStatus != nil {
		s.ErrorStatus = *w.ErrorStatus
	}
	return s, s.Validate()
}

// UnmarshalJSON reads {"latency":"250ms","latencyPercent":10,"errorPercent":5,"errorStatus":503}.
func (s *Settings) UnmarshalJSON(data []byte) error {
	var w wire
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	var err error
	*s, err = w.settings()
	return err
}

// MarshalJSON writes what UnmarshalJSON reads.
func (s Settings) MarshalJSON() ([]byte, error) {
	latency := s.Latency.String()
	return json.Marshal(wire{&latency, &s.LatencyPercent, &s.ErrorPercent, &s.ErrorStatus})
}

// FromEnv reads FAULT_LATENCY, FAULT_LATENCY_PERCENT, FAULT_ERROR_PERCENT and
// FAULT_ERROR_STATUS; an error names the variable's field.
func FromEnv(get func(string) string) (Settings, error) {
	var w wire
	var errs error
	if v := get("FAULT_LATENCY"); v != "" {
		w.Latency = &v
	}
	number := func(name string) *float64 {
		v := get(name)
		if v == "" {
			return nil
		}
		f, err := strconv.ParseFloat(v, 64)
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("%s %q: must be a number", name, v))
		}
		return &f
	}
	w.LatencyPercent = number("FAULT_LATENCY_PERCENT")
	w.ErrorPercent = number("FAULT_ERROR_PERCENT")
	if status := number("FAULT_ERROR_STATUS"); status != nil {
		n := int(*status)
		w.ErrorStatus = &n
	}
	if errs != nil {
		return Settings{}, errs
	}
	s, err := w.settings()
	if err != nil {
		return s, fmt.Errorf("FAULT_*: %w", err)
	}
	return s, nil
}

// Outcome is what happens to one request.
type Outcome struct {
	Wait   time.Duration
	Status int // zero: no error
}

// Decide picks the outcome from two numbers in [0,1).
func (s Settings) Decide(latency, failure float64) Outcome {
	var o Outcome
	if latency*100 < s.LatencyPercent {
		o.Wait = s.Latency
	}
	if failure*100 < s.ErrorPercent {
		o.Status = s.ErrorStatus
	}
	return o
}

// Injector holds the settings in force. It is safe for concurrent use.
type Injector struct {
	current atomic.Pointer[Settings]
	random  func() float64
}

// NewInjector starts with s; random returns numbers in [0,1) and is safe for
// concurrent use.
func NewInjector(s Settings, random func() float64) *Injector {
	i := &Injector{random: random}
	i.current.Store(&s)
	return i
}

// Settings returns those in force.
func (i *Injector) Settings() Settings { return *i.current.Load() }

// Set replaces them.
func (i *Injector) Set(s Settings) { i.current.Store(&s) }

func (i *Injector) decide() Outcome {
	return i.Settings().Decide(i.random(), i.random())
}
