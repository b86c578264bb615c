package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
	"github.com/lockwire/lockwire/lock/fence"
	"github.com/lockwire/lockwire/script"
)

// The resource checks the holder's token in the same step as the work.
func Example() {
	var ledger fence.Guard
	write := func(lease *lock.Lease, entry string) error {
		return ledger.Do(lease.Token(), func() error {
			fmt.Println("written:", entry)
			return nil
		})
	}

	ctx := context.Background()
	pool, err := conn.Open(ctx, conn.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	locks, err := lock.New(pool, lock.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	lease, err := locks.Fenced("ledger").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)
	if err := write(lease, "42 EUR"); err != nil {
		log.Fatal(err)
	}
}

// A stopped holder comes too late and is refused.
func ExampleGuard() {
	var ledger fence.Guard
	write := func(token int64, entry string) {
		err := ledger.Do(token, func() error {
			fmt.Println("written:", entry)
			return nil
		})
		if errors.Is(err, fence.ErrStale) {
			fmt.Println("refused:", entry)
		}
	}
	write(33, "by the first holder")
	write(34, "by the second, whose lease came after")
	write(33, "by the first, which had been stopped")
	// Output:
	// written: by the first holder
	// written: by the second, whose lease came after
	// refused: by the first, which had been stopped
}

// In SQL the row stores the largest token, at first 0. One statement compares and writes. A token of 0 comes from a lock without fencing.
func Example_sql() {
	withdraw := func(ctx context.Context, db *sql.DB, token int64, account string, amount int64) error {
		result, err := db.ExecContext(ctx,
			`UPDATE account SET balance = balance - $1, fence = $2 WHERE id = $3 AND fence <= $2 AND $2 > 0`, amount, token, account)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, fence.ErrStale)
		}
		return nil
	}
	_ = withdraw
}

// In Redis a script compares and writes. Both keys have the same hash tag, for a cluster.
func Example_redis() {
	set := script.New(`
		local token = tonumber(ARGV[1])
		if token < 1 or token < tonumber(redis.call('get', KEYS[2]) or 0) then
			return 0
		end
		redis.call('set', KEYS[2], ARGV[1])
		redis.call('set', KEYS[1], ARGV[2])
		return 1`)
	write := func(ctx context.Context, server conn.Doer, token int64, value string) error {
		written, err := set.Run(ctx, server, []string{"{ledger}", "{ledger}:fence"}, token, value)
		if err != nil {
			return err
		}
		if ok, err := written.Bool(); err != nil || !ok {
			return errors.Join(err, fence.ErrStale)
		}
		return nil
	}
	_ = write
}
