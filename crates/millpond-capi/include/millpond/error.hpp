// What is thrown.

#ifndef MILLPOND_ERROR_HPP
#define MILLPOND_ERROR_HPP

#include <millpond.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>

namespace millpond {

// What went wrong: what() says it in one line, with the remedy.
class error : public std::runtime_error {
public:
    error(millpond_status status, const char* why) : std::runtime_error(why), status_(status) {}
    millpond_status status() const noexcept { return status_; }

private:
    millpond_status status_;
};

// The address is not a block's that is held, or the size is not the block's. Nothing has changed.
class bad_free : public error {
public:
    using error::error;
};

// Memory is out, or a limit is reached.
class out_of_memory : public std::bad_alloc {
public:
    explicit out_of_memory(const char* why) : why_(why) {}
    const char* what() const noexcept override { return why_.what(); }

private:
    // Copies of its text cannot fail, as is wanted of what is thrown.
    std::runtime_error why_;
};

namespace detail {

// Throws it. Where exceptions are switched off, says it and ends the program.
template <class Exception>
[[noreturn]] void fail(const Exception& exception) {
#ifdef __cpp_exceptions
    throw exception;
#else
    std::fprintf(stderr, "millpond: %s\n", exception.what());
    std::abort();
#endif
}

[[noreturn]] inline void raise(int status) {
    const char* why = millpond_last_error();
    switch (status) {
        case MILLPOND_STATUS_OUT_OF_MEMORY:
            fail(out_of_memory(why));
        case MILLPOND_STATUS_FOREIGN:
        case MILLPOND_STATUS_INTERIOR:
        case MILLPOND_STATUS_ALREADY_FREE:
        case MILLPOND_STATUS_WRONG_SIZE:
            fail(bad_free(static_cast<millpond_status>(status), why));
        default:
            fail(error(static_cast<millpond_status>(status), why));
    }
}

inline void check(int status) {
    if (status != MILLPOND_STATUS_OK) raise(status);
}

}  // namespace detail

}  // namespace millpond

#endif  // MILLPOND_ERROR_HPP
