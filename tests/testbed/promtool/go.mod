module informer-hub.test/promtool

go 1.26.0
