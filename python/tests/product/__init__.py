"""The product test of the PyTorch binding: hundreds of small cases, each of which computes at N ranks and compares the
values with what one process computes from the whole batch, in the same process and without communication.

    gradwire run -n 2 -- python3 -m tests.product optimizer          in python/
    gradwire run -n 4 -- python3 -m tests.product hook gloo          DDP's own group may be any
    TESTS="adam clip" gradwire run -n 2 -- python3 -m tests.product optimizer
    TRACEBACKS=1 gradwire run -n 2 -- python3 -m tests.product group

Run with torch 2.13; Debian's 1.13 lacks most of what is tested. With the backend gloo three cases of
the group fail, which say that Gloo cannot do that.

PRODUCT_NEGATIVE=1 takes the communication out, and 95 % of the cases must fail then: so few pass by chance."""
