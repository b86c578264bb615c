package remote

// BySlot divides list by the slots of the elements' names. With a single server all elements are in a part.
func BySlot[T any](s *Server, list []T, name func(T) string) [][]T {
	if s.Spread == nil {
		return [][]T{list}
	}
	return Partition(list, func(e T) int { return s.Spread.Slot(name(e)) })
}

// Partition divides list by key and keeps the order within each part.
func Partition[T any, K comparable](list []T, key func(T) K) [][]T {
	places := make(map[K]int)
	var parts [][]T
	for _, e := range list {
		k := key(e)
		i, ok := places[k]
		if !ok {
			i = len(parts)
			places[k], parts = i, append(parts, nil)
		}
		parts[i] = append(parts[i], e)
	}
	return parts
}
