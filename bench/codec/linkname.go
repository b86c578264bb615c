package codec

import (
	"bufio"
	"io"
	"unsafe"

	_ "github.com/redis/go-redis/v9" // for the reader below
	"github.com/redis/rueidis"
)

// goRedisReader is go-redis' *proto.Reader.
type goRedisReader unsafe.Pointer

//go:linkname newGoRedisReader github.com/redis/go-redis/v9/internal/proto.NewReader
func newGoRedisReader(src io.Reader) goRedisReader

//go:linkname goRedisReply github.com/redis/go-redis/v9/internal/proto.(*Reader).ReadReply
func goRedisReply(r goRedisReader) (any, error)

//go:linkname goRedisString github.com/redis/go-redis/v9/internal/proto.(*Reader).ReadString
func goRedisString(r goRedisReader) (string, error)

//go:linkname goRedisInt github.com/redis/go-redis/v9/internal/proto.(*Reader).ReadInt
func goRedisInt(r goRedisReader) (int64, error)

//go:linkname goRedisArrayLen github.com/redis/go-redis/v9/internal/proto.(*Reader).ReadArrayLen
func goRedisArrayLen(r goRedisReader) (int, error)

//go:linkname readRueidis github.com/redis/rueidis.readNextMessage
func readRueidis(src *bufio.Reader) (rueidis.RedisMessage, error)
