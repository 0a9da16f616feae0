// The workloads that allocators are measured with, the same for all of them. An allocator has
//   void* allocate(size_t bytes, int stream);   void deallocate(void* ptr, size_t bytes, int stream);
// for streams 0 and 1, and may be called by two threads at once.
//
//   W1   4 KiB, allocated and freed
//   W2   64 blocks of 256 B to 1 MiB, by powers of two: a random one is replaced
//   W3   1000 blocks of 256 B to 10 MiB, evenly by logarithm: a random one is replaced
//   W4   W2 in two threads with a stream each
//   W5   one thread allocates, another frees on the same stream
//   W5x  as W5, and the other frees on another stream
#pragma once
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace peers {

inline double nanoseconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1e9 + now.tv_nsec;
}

// Keeps the compiler from leaving a call away whose answer nobody looks at.
inline void look_at(void*& ptr) { asm volatile("" : "+r"(ptr) : : "memory"); }

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    uint64_t mixed = state_ ^ (state_ >> 29);
    return (mixed * 0xd6e8feb86659fd93u) >> 11;
  }
  double fraction() { return double(next()) / double(uint64_t(1) << 53); }

 private:
  uint64_t state_;
};

// Which block is replaced, and by how large a one. Drawn before anything is measured.
struct Request {
  uint32_t slot, bytes;
};
constexpr size_t REQUESTS = 1 << 16;

inline uint32_t power_of_two(Random& random) { return 256u << (random.next() % 13); }
inline uint32_t by_logarithm(Random& random) { return uint32_t(256 * std::exp(random.fraction() * std::log(40960.0))); }

template <class Draw>
std::vector<Request> requests(uint32_t slots, uint64_t seed, Draw draw) {
  Random random(seed);
  std::vector<Request> all(REQUESTS);
  for (Request& request : all) request = {uint32_t(random.next() % slots), draw(random)};
  return all;
}

// Whether calls are timed one by one.
struct Unmetered {
  template <class Call>
  auto operator()(Call call) { return call(); }
};
class EachCall {
 public:
  explicit EachCall(size_t calls) { took_.reserve(calls); }
  template <class Call>
  auto operator()(Call call) {
    double start = nanoseconds(CLOCK_MONOTONIC);
    struct Note {
      std::vector<float>& took;
      double start;
      ~Note() { took.push_back(float(nanoseconds(CLOCK_MONOTONIC) - start)); }
    } note{took_, start};
    return call();
  }
  std::vector<float> took_;
};

struct Block {
  void* ptr;
  size_t bytes;
};

// A number of blocks, of which one after the other is replaced.
template <class Allocator>
class Replacing {
 public:
  Replacing(Allocator& allocator, int stream, std::vector<Request> requests, size_t slots)
      : allocator_(allocator), stream_(stream), requests_(std::move(requests)), blocks_(slots) {
    for (size_t slot = 0; slot < slots; slot++) blocks_[slot] = take(requests_[slot].bytes);
  }
  ~Replacing() {
    for (Block& block : blocks_) allocator_.deallocate(block.ptr, block.bytes, stream_);
  }
  template <class Meter>
  void replace(size_t times, Meter& meter) {
    for (size_t i = 0; i < times; i++) {
      Request request = requests_[i % REQUESTS];
      Block& block = blocks_[request.slot];
      meter([&] { allocator_.deallocate(block.ptr, block.bytes, stream_); });
      block = meter([&] { return take(request.bytes); });
    }
  }

 private:
  Block take(size_t bytes) {
    void* ptr = allocator_.allocate(bytes, stream_);
    look_at(ptr);
    return {ptr, bytes};
  }
  Allocator& allocator_;
  int stream_;
  std::vector<Request> requests_;
  std::vector<Block> blocks_;
};

inline void wait_a_moment(int& rounds) {
  if (++rounds % 128 == 0) sched_yield();
  else __builtin_ia32_pause();
}

class Meeting {
 public:
  void wait_for(int threads) {
    arrived_++;
    for (int rounds = 0; arrived_ < threads;) wait_a_moment(rounds);
  }

 private:
  std::atomic<int> arrived_{0};
};

// From one thread to another: as many blocks as there is room for are on their way.
class Pipe {
 public:
  void push(Block block) {
    size_t at = pushed_.load(std::memory_order_relaxed);
    for (int rounds = 0; at - popped_seen_ == ROOM;) {
      popped_seen_ = popped_.load(std::memory_order_acquire);
      if (at - popped_seen_ == ROOM) wait_a_moment(rounds);
    }
    blocks_[at % ROOM] = block;
    pushed_.store(at + 1, std::memory_order_release);
  }
  Block pop() {
    size_t at = popped_.load(std::memory_order_relaxed);
    for (int rounds = 0; at == pushed_seen_;) {
      pushed_seen_ = pushed_.load(std::memory_order_acquire);
      if (at == pushed_seen_) wait_a_moment(rounds);
    }
    Block block = blocks_[at % ROOM];
    popped_.store(at + 1, std::memory_order_release);
    return block;
  }

 private:
  static constexpr size_t ROOM = 256;
  Block blocks_[ROOM];
  alignas(128) std::atomic<size_t> pushed_{0};
  alignas(128) size_t popped_seen_ = 0;
  alignas(128) std::atomic<size_t> popped_{0};
  alignas(128) size_t pushed_seen_ = 0;
};

// Nanoseconds per pair of an allocation and a free: of processor time, which a busy machine does not lengthen; where threads wait for
// each other, of the clock on the wall.
template <class Allocator, class Meter>
double one_thread(Allocator& allocator, const std::string& workload, size_t pairs, Meter& meter) {
  double start;
  if (workload == "W1") {
    start = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    for (size_t i = 0; i < pairs; i++) {
      void* ptr = meter([&] { return allocator.allocate(4096, 0); });
      look_at(ptr);
      meter([&] { allocator.deallocate(ptr, 4096, 0); });
    }
    return (nanoseconds(CLOCK_THREAD_CPUTIME_ID) - start) / pairs;
  }
  size_t slots = workload == "W3" ? 1000 : 64;
  auto drawn = workload == "W3" ? requests(slots, 7, by_logarithm) : requests(slots, 7, power_of_two);
  Replacing<Allocator> blocks(allocator, 0, std::move(drawn), slots);
  Unmetered unmetered;
  blocks.replace(20000, unmetered);
  start = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
  blocks.replace(pairs, meter);
  return (nanoseconds(CLOCK_THREAD_CPUTIME_ID) - start) / pairs;
}

template <class Allocator, class Meter>
double two_streams(Allocator& allocator, size_t pairs, Meter (&meters)[2]) {
  Meeting begin, end;
  double took[2];
  auto work = [&](int number) {
    Replacing<Allocator> blocks(allocator, number, requests(64, 7 + number, power_of_two), 64);
    Unmetered unmetered;
    blocks.replace(20000, unmetered);
    begin.wait_for(2);
    double start = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    blocks.replace(pairs, meters[number]);
    took[number] = nanoseconds(CLOCK_THREAD_CPUTIME_ID) - start;
    end.wait_for(2);
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  return (took[0] + took[1]) / 2 / pairs;
}

template <class Allocator, class Meter>
double handed_over(Allocator& allocator, int freed_on, size_t pairs, Meter (&meters)[2]) {
  Meeting begin;
  Pipe pipe;
  double start = 0, end = 0;
  const size_t warm_up = 20000;
  std::vector<Request> drawn = requests(64, 7, power_of_two);
  std::thread frees([&] {
    Unmetered unmetered;
    begin.wait_for(2);
    for (size_t i = 0; i < pairs + warm_up; i++) {
      Block block = pipe.pop();
      auto free = [&] { allocator.deallocate(block.ptr, block.bytes, freed_on); };
      i < warm_up ? unmetered(free) : meters[1](free);
    }
    end = nanoseconds(CLOCK_MONOTONIC);
  });
  Unmetered unmetered;
  begin.wait_for(2);
  for (size_t i = 0; i < pairs + warm_up; i++) {
    if (i == warm_up) start = nanoseconds(CLOCK_MONOTONIC);
    size_t bytes = drawn[i % REQUESTS].bytes;
    auto take = [&] { return allocator.allocate(bytes, 0); };
    void* ptr = i < warm_up ? unmetered(take) : meters[0](take);
    look_at(ptr);
    pipe.push({ptr, bytes});
  }
  frees.join();
  return (end - start) / pairs;
}

template <class Allocator, class Meter>
double run(Allocator& allocator, const std::string& workload, size_t pairs, Meter (&meters)[2]) {
  if (workload == "W4") return two_streams(allocator, pairs, meters);
  if (workload == "W5") return handed_over(allocator, 0, pairs, meters);
  if (workload == "W5x") return handed_over(allocator, 1, pairs, meters);
  return one_thread(allocator, workload, pairs, meters[0]);
}

// What the clock says an empty call takes.
inline double clock_cost() {
  EachCall meter(20001);
  for (int i = 0; i < 20001; i++) meter([] {});
  std::nth_element(meter.took_.begin(), meter.took_.begin() + 10000, meter.took_.end());
  return meter.took_[10000];
}

// Measures one workload so often, and prints for each time the nanoseconds per pair, and then those within which all but one of a
// thousand calls stay.
template <class Allocator>
int measure(Allocator& allocator, const std::string& workload, int repetitions) {
  Unmetered unmetered[2];
  size_t pairs = workload == "W1" ? 1000000 : workload == "W5x" ? 100000 : 300000;
  run(allocator, workload, pairs / 4, unmetered);
  for (int i = 0; i < repetitions; i++) printf("pair %.2f\n", run(allocator, workload, pairs, unmetered));
  const size_t calls = 100000;
  EachCall each[2] = {EachCall(2 * calls), EachCall(2 * calls)};
  run(allocator, workload, calls, each);
  std::vector<float> took = each[0].took_;
  took.insert(took.end(), each[1].took_.begin(), each[1].took_.end());
  auto last = took.begin() + took.size() * 999 / 1000;
  std::nth_element(took.begin(), last, took.end());
  printf("call %.0f\n", std::max(0.0, *last - clock_cost()));
  return 0;
}

}  // namespace peers
