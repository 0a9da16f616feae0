// Functions as PyTorch hands them over, made by a C++ compiler: for the unit test of cxx_function_ffi.rs.
#include <functional>

namespace {

int alive = 0;

// Counts its copies. Large ones do not fit into a std::function and are on the heap.
template <int Words>
struct Is {
  void *wanted;
  void *more[Words];
  explicit Is(void *wanted) : wanted(wanted), more{} { ++alive; }
  Is(const Is &other) : wanted(other.wanted), more{} { ++alive; }
  ~Is() { --alive; }
  bool operator()(void *stream) const { return stream == wanted; }
};

bool yes(void *) { return true; }

using Begin = void (*)(int, std::pair<unsigned long long, unsigned long long>, std::function<bool(void *)>);

}  // namespace

extern "C" {

// Which of them, or an empty one.
void *make_function(int which, void *wanted) {
  using Function = std::function<bool(void *)>;
  switch (which) {
    case 0: return new Function(Is<1>(wanted));
    case 1: return new Function(Is<9>(wanted));
    case 2: return new Function([wanted](void *stream) { return stream == wanted; });
    case 3: return new Function(&yes);
    default: return new Function();
  }
}

void drop_function(void *function) { delete static_cast<std::function<bool(void *)> *>(function); }

int functions_alive() { return alive; }

// Calls as PyTorch's beginAllocateToPool does: the pair and the function by value.
void call_begin(void *begin, void *wanted) {
  reinterpret_cast<Begin>(begin)(3, {41, 42}, Is<9>(wanted));
}
}
