// Closed network, several zones, warm instances for what people and executions wait for.
using 'main.bicep'

var emails = readEnvironmentVariable('ALERT_EMAILS', '')
// A pipeline sets a variable that nobody gave to nothing.
var audience = readEnvironmentVariable('AUTH_AUDIENCE', '')

param environmentName = readEnvironmentVariable('AZURE_ENV_NAME', 'weft-prod')
param location = readEnvironmentVariable('AZURE_LOCATION', 'westeurope')
param durableBackend = readEnvironmentVariable('DURABLE_BACKEND', 'storage')
param authAudience = empty(audience) ? 'api://weft' : audience
param vnetEnabled = true
param apiPublicAccess = false
param zoneRedundant = true
param serviceBusSku = 'Premium'
param serviceBusCapacity = 1
param cosmosServerless = false
param executionsMaxThroughput = 10000
param sharedMaxThroughput = 4000
param backupTier = 'Continuous30Days'
param instanceMemoryMB = 2048
param maximumInstanceCount = 100
param httpConcurrency = 32
param alwaysReadyHttp = 2
param alwaysReadyOrchestration = 2
param siteUpdateStrategy = 'RollingUpdate'
param logRetentionDays = 90
param budgetAmount = 3000
param budgetStart = readEnvironmentVariable('BUDGET_START', '')
param alertEmails = empty(emails) ? [] : split(emails, ',')
