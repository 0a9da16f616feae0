// What the C++ programs here check with.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                                    \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            std::printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);             \
            std::exit(1);                                                                   \
        }                                                                                   \
    } while (false)

// The call throws just this, and the exception is looked at.
template <class Exception, class Call, class Look>
void throws(Call&& call, Look&& look) {
    try {
        call();
    } catch (const Exception& thrown) {
        look(thrown);
        return;
    }
    std::printf("nothing was thrown\n");
    std::exit(1);
}

template <class Exception, class Call>
void throws(Call&& call) {
    throws<Exception>(call, [](const Exception&) {});
}
